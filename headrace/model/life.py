"""Which incarnation of a topic an offset belongs to: progress is kept under this name beside the data.

A topic that is made anew under its name begins at offset 0 again. Progress of before says nothing about it.
"""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["is_among", "life_of", "topic_in"]

_MARK = "@"
"""Kafka allows it in no topic's name."""


def life_of(topic: str, topic_id: str) -> str:
    """Return the name of one incarnation of a topic; the topic's own name where its id is not known."""
    return f"{topic}{_MARK}{topic_id}" if topic_id else topic


def topic_in(life: str) -> str:
    """Return the topic of an incarnation's name."""
    return life.partition(_MARK)[0]


def is_among(life: str, named: Collection[str]) -> bool:
    """Return whether an incarnation is named itself, or its topic is, by which all of them are meant."""
    return life in named or topic_in(life) in named
