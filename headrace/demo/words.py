"""What the people of the shop write: names, sentences and documents, drawn from a seeded generator."""

from __future__ import annotations

import uuid
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from random import Random
from typing import Any

__all__ = [
    "START",
    "TIERS",
    "cents",
    "day",
    "digits",
    "document",
    "moment",
    "name",
    "picked",
    "sentence",
    "storage_filler",
    "unique",
    "wall_clock",
]

START = datetime(2026, 1, 5, 8, 0, tzinfo=timezone.utc)
"""When the shop opened; everything seeded happens within the year before it."""

TIERS = ("guest", "member", "gold", "house account")

_FIRST = (
    "Ada",
    "Bjørn",
    "Chloé",
    "Dmitri",
    "Eun-ji",
    "Fatima",
    "Grace",
    "Håkon",
    "Inés",
    "Jürgen",
    "Kwame",
    "Léa",
)
_LAST = (
    "Lindqvist",
    "O'Hara",
    "Çelik",
    "Nakamura",
    "da Silva",
    "Müller",
    "Ångström",
    "Okafor",
    "Novák",
    "Smith",
)
_NOUNS = (
    "kettle",
    "lamp",
    "jacket",
    "bicycle",
    "notebook",
    "Käse",
    "茶",
    "tent",
    "chair",
    "guitar",
    "mug",
    "boots",
)
_WORDS = (
    *(
        "bright",
        "quiet",
        "sturdy",
        "light",
        "odd",
        "warm",
        "cheap",
        "naïve",
        "émigré",
        "漢字",
        "🙂",
        "don't",
        "<b>",
    ),
    *(
        "“quoted”",
        '"plain"',
        "back\\slash",
        "tab\there",
        "new\nline",
        "comma,",
        "semi;colon",
        "percent%",
        "colon:",
    ),
    *("brace{d}", "null", "NULL", "\\N", "0", " two  spaces "),
)
_COLOURS = ("red", "green", "blue", "off-white", "black & tan", "naturel")


def name(rng: Random) -> str:
    """Return a person's name."""
    return f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"


def sentence(rng: Random, words: int) -> str:
    """Return ``words`` words, among them those that careless quoting breaks."""
    return " ".join(rng.choices(_WORDS, k=words))


def picked(rng: Random, most: int) -> list[str]:
    """Return up to ``most`` nouns; sometimes none."""
    return rng.choices(_NOUNS, k=rng.randint(0, most))


def document(rng: Random) -> dict[str, Any]:
    """Return a small JSON document: nested, with numbers, null, an empty list and an empty text."""
    return {
        "colour": rng.choice(_COLOURS),
        "price": rng.randint(100, 99_999) / 100,
        "dims": {"w": rng.randint(1, 900), "h": rng.randint(1, 900), "unit": "mm"},
        "labels": picked(rng, 3),
        "note": rng.choice((None, "", 'say "hi"', "a\\b", "ü")),
        "ok": rng.random() < 0.5,
    }


def cents(rng: Random, most: int) -> Decimal:
    """Return an amount of money below ``most``, two digits after the point."""
    return Decimal(rng.randint(1, most * 100)) / 100


def digits(rng: Random) -> Decimal:
    """Return a number no double can hold: trailing zeros, many digits, very small or very large."""
    shape = rng.random()
    if shape < 0.5:
        return Decimal(f"{rng.randint(0, 99)}.{rng.randint(0, 9)}0")
    if shape < 0.9:
        return Decimal(f"{rng.randint(0, 9)}.{rng.getrandbits(60)}")
    return Decimal(f"{'-' if shape > 0.95 else ''}{rng.getrandbits(90)}.{rng.getrandbits(70)}")


def moment(rng: Random) -> datetime:
    """Return a moment in the year before :data:`START`, to the microsecond, written in some zone."""
    zone = timezone(timedelta(minutes=rng.choice((0, 0, 60, -300, 330))))
    return (START - timedelta(microseconds=rng.randrange(365 * 86_400 * 1_000_000))).astimezone(zone)


def wall_clock(rng: Random) -> datetime:
    """Return a date and time without a zone."""
    return moment(rng).replace(tzinfo=None)


def day(rng: Random, first_year: int, last_year: int) -> date:
    """Return a date between two years."""
    first = date(first_year, 1, 1).toordinal()
    return date.fromordinal(rng.randint(first, date(last_year, 12, 31).toordinal()))


def unique(rng: Random) -> uuid.UUID:
    """Return a UUID that is the same for the same seed."""
    return uuid.UUID(int=rng.getrandbits(128), version=4)


def storage_filler(rng: Random) -> str:
    """Return 4 to 9 thousand characters that do not compress, so that Postgres stores them out of line."""
    return rng.randbytes(rng.randint(2_000, 4_500)).hex()
