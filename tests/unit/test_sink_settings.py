"""What a person writes as `--set name=value` is what the setting takes: a text of digits stays a text."""

from __future__ import annotations

from typing import Any

import pytest

from sinks.registry import config_model, setting_of

URLS = {"redis": {"url": "redis://h"}, "elasticsearch": {"url": "http://h"}, "delta": {"path": "/x"}}


@pytest.mark.parametrize(
    ("kind", "name", "text", "value"),
    [
        ("redis", "username", "123456", "123456"),
        ("redis", "password", "123456", "123456"),
        ("redis", "password", "true", "true"),
        ("redis", "key_prefix", "7", "7"),
        ("redis", "timeout", "7.5", 7.5),
        ("elasticsearch", "prefix", "2026", "2026"),
        ("elasticsearch", "username", "null", None),
        ("elasticsearch", "refresh_interval", "-1", "-1"),
        ("elasticsearch", "shards", "3", 3),
        ("delta", "deletion_vectors", "true", True),
        ("delta", "path", "42", "42"),
        ("delta", "unheld", "null", "null"),
    ],
)
def test_a_setting_is_read_as_what_it_takes(kind: str, name: str, text: str, value: Any) -> None:
    found = setting_of(kind, name, text)
    assert found == value
    assert type(found) is type(value)
    config_model(kind)(**{**URLS[kind], name: found})


def test_what_is_no_setting_is_left_to_the_model() -> None:
    assert setting_of("redis", "nonsense", "[1]") == [1]
    assert setting_of("redis", "nonsense", "[1") == "[1"
    assert setting_of("delta", "unheld.public.t.v", "nearest") == "nearest"
