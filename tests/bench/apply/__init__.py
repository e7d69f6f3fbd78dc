"""The sinks against the raw clients of their stores, on the same rows."""
