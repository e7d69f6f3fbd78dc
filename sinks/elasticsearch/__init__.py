"""The Elasticsearch sink: one index per table, one document per row, ordered by external versions."""

from __future__ import annotations

from sinks.elasticsearch.sink import ElasticsearchSink

__all__ = ["ElasticsearchSink"]
