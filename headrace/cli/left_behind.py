"""What a purge of the local stack would leave in databases that are not part of it."""

from __future__ import annotations

from urllib.parse import urlsplit

from headrace.control.begun import noted
from headrace.control.registry import Registry, SourceEntry
from headrace.local.home import Home
from headrace.local.ports import load_ports
from headrace.model.errors import EnvironmentError_, UsageError

__all__ = ["refuse_sources_left"]

_HERE = ("127.0.0.1", "localhost", "::1")


def refuse_sources_left(home: Home) -> None:
    """Refuse to purge while a database outside the stack keeps a slot for one of its sources.

    Raises:
        UsageError: ``SOURCES_LEFT``: nobody would read the slot any more, and it keeps the log.
        EnvironmentError_: When the registry cannot be read, so that nobody knows.
    """
    path = home.root / "registry.db"
    if not home.exists() or not path.exists():
        return
    try:
        registry = Registry(path)
        known = [*registry.sources(), *(begun.entry for begun in noted(registry).values() if begun.made)]
        elsewhere = [entry for entry in known if not _is_ours(home, entry)]
    except EnvironmentError_ as error:
        error.message += " Which databases keep a slot for its sources is not known."
        error.hint = (
            "Drop the slots headrace_… in the databases that were followed, or their disks fill up; then:"
            " headrace down --purge --forget-sources"
        )
        raise
    if elsewhere:
        told = ", ".join(f"{entry.name} ({entry.address})" for entry in elsewhere)
        raise UsageError(
            f"Databases outside this stack keep what sources have there, a slot and its log, say: {told}.",
            code="SOURCES_LEFT",
            hint=f"headrace source remove {elsewhere[0].name}",
        )


def _is_ours(home: Home, entry: SourceEntry) -> bool:
    """Return whether the source's database is the stack's own, which is deleted with it."""
    try:
        place = urlsplit(entry.address)
        host, port = place.hostname, place.port
    except ValueError:  # several hosts: none of ours
        return False
    return host in _HERE and port == (load_ports(home.ports_file) or {}).get("postgres")
