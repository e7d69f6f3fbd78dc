"""Headrace keeps derived stores equal to a Postgres database: the core, named after the product."""
