"""An installation without servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.control.context import Context


@pytest.fixture
def context(tmp_path: Path) -> Context:
    places = {name: tmp_path / name for name in Context.__dataclass_fields__ if name != "engine"}
    words = {"connect_url": "", "kafka_bootstrap": ""}
    return Context(**{**places, **words}, engine=lambda: None)  # type: ignore[arg-type, return-value]
