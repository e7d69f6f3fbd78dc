"""The decoders of a pipeline, by topic."""

from __future__ import annotations

from connectors.debezium import Decoder
from headrace.config.pipeline import PipelineSpec, SchemaPolicy
from spark_jobs.per_pipeline import PerPipeline

__all__ = ["decoders"]


def _decoders(spec: PipelineSpec) -> dict[str, Decoder]:
    strict = spec.on_schema_change is SchemaPolicy.EXCEPTION
    return {t.topic: Decoder(t.schema_, t.epoch, spec.placeholder, strict=strict) for t in spec.tables}


def decoders(pipeline: str) -> dict[str, Decoder]:
    """Return the decoders of a pipeline (its spec as JSON) by topic; built once per process."""
    return _known(pipeline)  # a function, for functions that Spark sends to its workers refer to it


_known = PerPipeline(_decoders)
