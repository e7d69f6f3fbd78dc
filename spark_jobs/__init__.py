"""The data plane: decode, collapse, apply, settle."""
