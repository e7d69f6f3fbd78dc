"""Where things are, passed in from outside: the control plane looks nothing up by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from headrace.config.pipeline import EngineSpec

__all__ = ["Context"]


@dataclass(frozen=True, slots=True)
class Context:
    """Servers and directories of one installation.

    Args:
        registry: The SQLite file.
        secrets: Directory of secret files; the Connect workers read it too.
        connect_url: Connect's REST address.
        kafka_bootstrap: Broker addresses.
        pipelines: Directory of pipeline specifications, watched by the engine.
        progress: Directory of progress files, written by the engine.
        checkpoints: Directory of query checkpoints.
        dead_letters: Directory of dead letter files, a folder per sink.
        requests: Directory of requests to the sinks' queries, a folder per sink.
        owners: Directory of what this installation's queries claimed their targets as.
        run: Directory of pid files.
        connect_log: What the local stack's Connect writes; nothing of ours when Connect is elsewhere.
        engine: Builds the engine's specification; called only when the engine is needed.
    """

    registry: Path
    secrets: Path
    connect_url: str
    kafka_bootstrap: str
    pipelines: Path
    progress: Path
    checkpoints: Path
    dead_letters: Path
    requests: Path
    owners: Path
    run: Path
    connect_log: Path
    engine: Callable[[], EngineSpec]

    @property
    def sink_secrets(self) -> Path:
        """Directory of the sinks' secrets; beside the sources', for Connect's workers read those."""
        return self.registry.parent / "sink-secrets"

    def dump(self) -> str:
        """Return the addresses and directories as JSON; see :meth:`load`."""
        told = {
            known.name: str(getattr(self, known.name)) for known in fields(self) if known.name != "engine"
        }
        return json.dumps(told)

    @classmethod
    def load(cls, text: str, engine: Callable[[], EngineSpec]) -> Context:
        """Invert :meth:`dump`."""
        told = json.loads(text)
        words = ("connect_url", "kafka_bootstrap")
        places: dict[str, Any] = {n: value if n in words else Path(value) for n, value in told.items()}
        return cls(**places, engine=engine)
