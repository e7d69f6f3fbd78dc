"""Specifications at the edge: what a user declares, checked before anything acts on it."""
