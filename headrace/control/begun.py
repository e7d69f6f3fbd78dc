"""What an ``add`` of a source has begun, noted before anything is made: so that a name takes it back.

The note goes in the transaction that registers the source, or when all that was made is gone again. Where not
all of it could be taken back, and while the end of a removal is under way, what is left is noted, too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from connectors.base import Capture
from headrace.config.secrets import SecretRef
from headrace.control.entries import BegunEntry
from headrace.control.registry import Registry, SourceEntry, SourceTableEntry, now_ms

__all__ = ["Before", "Begun", "Undo", "begin", "end", "keep", "making", "named", "noted", "registered"]


@dataclass(frozen=True, slots=True)
class Before:
    """What was there before a source of the name was begun, and stays when that is taken back.

    Args:
        topics: Those of its topics that were.
        file: Whether the file with the password was there.
    """

    topics: frozenset[str] = frozenset()
    file: bool = False


@dataclass(frozen=True, slots=True)
class Begun:
    """A source that was begun and is not registered.

    Args:
        entry: What would have been registered, without epochs; it is in no registry.
        made: Whether anything may be there but the note and the file with the password.
        before: What was there before.
        connector: Whether a connector of it may have been created.
    """

    entry: SourceEntry
    made: bool
    before: Before
    connector: bool


class Undo(ExitStack):
    """Takes back, the last step first, what was made, and remembers when that did not go well.

    Attributes:
        whole: Whether each step that had to be was taken back.
        kept: Whether nothing is to be taken back.
    """

    whole = True
    kept = False

    def keep(self) -> None:
        """Take nothing back: what was made is to stay."""
        self.kept = True
        self.pop_all()

    def surely(self, call: Callable[..., object], *arguments: object) -> None:
        """Have ``call`` take a step back; when it fails, not all was taken back."""

        def attempt() -> None:
            try:
                call(*arguments)
            except BaseException:
                self.whole = False
                raise

        self.callback(attempt)


def begin(registry: Registry, capture: Capture, kind: str, address: str, before: Before) -> None:
    """Note what is about to be made.

    Args:
        registry: The registry.
        capture: What the source is to be.
        kind: Of the database.
        address: The database's, without its password.
        before: What is there already.
    """
    plan = {
        "kind": kind,
        "address": address,
        "placeholder": capture.placeholder,
        "settings": capture.settings.model_dump(),
        "system": capture.system,
        "tables": {capture.topic(schema.table): schema.as_dict() for schema in capture.tables},
        "topics": sorted(before.topics),
        "file": before.file,
        "connector": False,
    }
    with registry.begin() as session:
        session.merge(BegunEntry(source=capture.source, at_ms=now_ms(), made=False, plan=plan))


def making(registry: Registry, name: str) -> None:
    """Note that things are made from now on; the file with the password is there."""
    with registry.begin() as session:
        session.get_one(BegunEntry, name).made = True


def registered(session: Session, name: str) -> None:
    """Take the note away, in the transaction that registers the source."""
    if (found := session.get(BegunEntry, name)) is not None:
        session.delete(found)


def noted(registry: Registry) -> dict[str, Begun]:
    """Return by name what was begun and is not registered."""
    with registry.reading() as session:
        known = set(session.scalars(select(SourceEntry.name)))
        found = list(session.scalars(select(BegunEntry).order_by(BegunEntry.source)))
    return {one.source: _told(one) for one in found if one.source not in known}


def named(registry: Registry, name: str) -> SourceEntry:
    """Return a source that is registered, or one that was begun.

    Raises:
        UsageError: When there is neither (``SOURCE_UNKNOWN``).
    """
    begun = noted(registry).get(name)
    return begun.entry if begun is not None else registry.source(name)


def keep(registry: Registry, name: str, placeholder: str, before: Before) -> None:
    """Turn a registration that is to be taken back into a note, if it was made with the placeholder."""
    with registry.begin() as session:
        found = session.get(SourceEntry, name)
        if found is not None and found.placeholder == placeholder:
            session.merge(_noted(found, before, made=True))
            session.delete(found)


def end(
    registry: Registry, secret: SecretRef, name: str, before: Before, placeholder: str | None = None
) -> None:
    """Forget a source of which nothing else is left, and its password; idempotent.

    Args:
        registry: The registry.
        secret: Where the password lies.
        name: The source.
        before: What stays.
        placeholder: Nothing is done when the name was registered with another one; None for any.
    """
    with registry.begin() as session:
        found = session.get(SourceEntry, name)
        if found is not None and placeholder not in (None, found.placeholder):
            return
        if found is not None:
            session.merge(_noted(found, before, made=False))
            session.delete(found)
        elif (begun := session.get(BegunEntry, name)) is not None:
            begun.made = False
    if not before.file:
        secret.forget()
    with registry.begin() as session:
        registered(session, name)


def _noted(entry: SourceEntry, before: Before, *, made: bool) -> BegunEntry:
    plan = {
        "kind": entry.kind,
        "address": entry.address,
        "placeholder": entry.placeholder,
        "settings": entry.settings,
        "system": entry.system,
        "tables": {table.topic: table.table for table in entry.tables},
        "topics": sorted(before.topics),
        "file": before.file,
        "connector": True,
    }
    return BegunEntry(source=entry.name, at_ms=now_ms(), made=made, plan=plan)


def _told(found: BegunEntry) -> Begun:
    plan = found.plan
    entry = SourceEntry(
        name=found.source,
        kind=plan["kind"],
        address=plan["address"],
        placeholder=plan["placeholder"],
        settings=plan["settings"],
        system=plan["system"],
        created_ms=found.at_ms,
        loaded_ms=None,
        gap=None,
        adding="registered",  # to whom gives the command again it is as one of which nothing is at work
        tables=[
            SourceTableEntry(topic=topic, place=place, topic_id="", epoch=0, table=table)
            for place, (topic, table) in enumerate(plan["tables"].items())
        ],
    )
    before = Before(frozenset(plan["topics"]), bool(plan["file"]))
    return Begun(entry, found.made, before, bool(plan["connector"]))
