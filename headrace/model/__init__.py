"""The language of the system, each truth once: change, position, key, schema, values, outcome, errors."""
