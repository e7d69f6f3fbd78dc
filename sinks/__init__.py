"""Kinds of derived store, each behind the same promise."""
