"""A new sink's targets are refused when they meet those of another sink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.control.registry import Registry, SinkEntry, SourceEntry
from headrace.control.targets import refuse_shared
from headrace.model.errors import UsageError


def entry(name: str, kind: str, facts: dict[str, str], url: str = "redis://h") -> SinkEntry:
    return SinkEntry(
        name=name,
        kind=kind,
        source="shop",
        settings={"url": url},
        tables={"shop.public.t": facts},
        incomplete={},
        on_schema_change="lenient",
        created_ms=1,
    )


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    known = Registry(tmp_path / "registry.db")
    facts: dict[str, dict[str, Any]] = {
        "redis": {"key_template": "shop:orders:{id}"},
        "delta": {"path": "/lake/shop/orders"},
        "elasticsearch": {"alias": "shop-orders"},
    }
    with known.begin() as session:
        source: dict[str, Any] = {"kind": "postgres", "address": "a", "placeholder": "p", "settings": {}}
        session.add(SourceEntry(name="shop", system="1", created_ms=1, **source))
        session.flush()
        for kind, told in facts.items():
            session.add(entry(f"old{kind}", kind, told))
    return known


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("redis", {"key_template": "shop:orders:{id}"}),
        ("redis", {"key_template": "shop:orders:{id}:{n}", "format": "hash"}),
        ("redis", {"key_template": "shop:orders:lines:{id}"}),
        ("redis", {"key_template": "shop:{id}"}),
        ("delta", {"path": "/lake/shop/orders/"}),
        ("delta", {"path": "/lake/shop/orders/lines"}),
        ("delta", {"path": "/lake/shop"}),
        ("elasticsearch", {"alias": "shop-orders"}),
    ],
)
def test_a_target_that_meets_another_is_refused(registry: Registry, kind: str, facts: dict[str, str]) -> None:
    with pytest.raises(UsageError) as refused:
        refuse_shared(registry, entry("new", kind, facts))
    assert refused.value.code == "SINK_TARGET_TAKEN"
    assert f"old{kind}" in refused.value.message


@pytest.mark.parametrize(
    ("kind", "facts", "url"),
    [
        ("redis", {"key_template": "shop:orders2:{id}"}, "redis://h"),
        ("redis", {"key_template": "shop:orders:{id}"}, "redis://other"),
        ("delta", {"path": "/lake/shop/orders2"}, "redis://h"),
        ("elasticsearch", {"alias": "shop-orders-lines"}, "redis://h"),
    ],
)
def test_a_target_beside_another_is_taken(
    registry: Registry, kind: str, facts: dict[str, str], url: str
) -> None:
    refuse_shared(registry, entry("new", kind, facts, url))
