"""Kinds of source: what to ask of Debezium and how to read its records."""
