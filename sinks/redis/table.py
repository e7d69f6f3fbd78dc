"""Where the rows of one table lie in Redis, and how they are written there."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.key import Key, ids
from headrace.model.schema import TableSchema
from sinks.redis.client import RedisConfig
from sinks.redis.layout import HashLayout, JsonLayout, Layout
from sinks.redis.names import Keys, counts_key, notes_key

__all__ = ["Table"]


class Table:
    """What the sink knows about one table while it lives."""

    def __init__(self, config: RedisConfig, schema: TableSchema) -> None:
        self.schema = schema
        self.keys = Keys(config.key_prefix, config.key_template, schema, config.shadow)
        self.documents = JsonLayout(schema)
        self.layout: Layout = HashLayout(schema) if config.format == "hash" else self.documents
        self.life_ms = int(config.tombstone_hours * 3_600_000)
        own, prefix = self.keys, config.key_prefix
        counts, notes = counts_key(prefix), "" if config.shadow else notes_key(prefix)
        self.preamble = (len(own.head.encode()), own.young, own.elder, self.life_ms, counts, notes)

    def row_keys(self, keys: Sequence[Key]) -> list[str]:
        """Return where these rows lie."""
        head = self.keys.head
        return [head + key_id for key_id in ids(keys)]
