"""What is printed of a letter that is no document, or one that nobody can print."""

from __future__ import annotations

import pytest

from headrace.cli.dlq import _readable


@pytest.mark.parametrize(
    "raw",
    [b"[" * 5_000 + b"]" * 5_000, b'{"a":"\\ud800"}', b"{", b"\xff"],
    ids=["deep", "half", "cut", "bytes"],
)
def test_a_letter_that_cannot_be_printed_is_shown_by_its_bytes(raw: bytes) -> None:
    assert _readable(raw) == repr(raw)


def test_a_letter_is_shown_as_a_document() -> None:
    assert _readable(b'{"a":1}') == '{\n  "a": 1\n}'
    assert _readable(None) == "null"
