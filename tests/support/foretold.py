"""Every refusal of ``source add`` and ``sink add`` that a test sees must be said by the check as well.

While tests run, both functions are wrapped: what one refuses is asked of its check with the same arguments,
and the check has to know the code. :data:`LATER` names the codes that nobody can know before, and why.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.control import sink, sink_check, source, source_check
from headrace.model.errors import HeadraceError
from headrace.model.finding import Severity

__all__ = ["LATER"]

LATER = {
    "CONNECTOR_FAILED": "the connector's own trouble while it reads",
    "CONNECTOR_STALLED": "the connector runs and tells nothing new: only waiting shows it",
    "CONNECTOR_NOT_STARTED": "the connector's own trouble while it starts",
    "CONNECTOR_REFUSED": "what the worker finds on its own way to the database",
    "FIRST_LOAD_NOT_BEGUN": "a run that does not begin",
    "SOURCE_ANOTHER_CLUSTER": "where the address of one that is begun again leads to by then",
    "SOURCE_ELSEWHERE": "where the connector's driver gets to",
    "SOURCE_MISREAD": "what the worker makes of values, once it reads",
    "SOURCE_LOAD_RESTARTS": "a load that begins again and again",
    "SOURCE_WAITS": "who is waited for; the check warns of transactions that are open",
    "SOURCE_LOCKED": "who holds a lock at that moment",
    "SOURCE_GAVE_WAY": "an operator who ends a session meanwhile",
    "SOURCE_SLOT_BUSY": "who reads from the slot of one that is begun again at that moment",
    "SOURCE_FAILED_OVER": "a failover while the tables are read",
    "RESNAPSHOT_PAUSED": "somebody who pauses the run meanwhile",
    "RESNAPSHOT_UNATTENDED": "an engine that ends meanwhile",
    "SINK_NOT_STARTED": "an engine that does not come up",
    "SINK_AT_REST": "a sink that somebody pauses meanwhile",
    "SOURCE_GOING": "a removal meanwhile",
    "SOURCE_RECOVERED": "a recovery meanwhile",
    "SINK_DEFERS": "a store that is busy at that moment",
}
"""Code → what cannot be known before."""


def _asked(check: Callable[[], Any]) -> list[str]:
    """Return the code of each error, also of several that have the same."""
    try:
        return [one.code for one in check() if one.severity is Severity.ERROR]
    except HeadraceError as error:
        return [error.code]


def _foretold(add: Callable[..., Any], check: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(add)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        try:
            return add(*arguments, **named)
        except HeadraceError as error:
            said = _asked(lambda: check(*arguments, **named))
            several = len(said) > 1 and error.code in ("SOURCE_UNFIT", "SINK_UNFIT")
            if error.code in said or several or error.code in LATER:
                raise
            pytest.fail(f"{add.__module__}.add: {error.code}; its check knows nothing of it, but {said}")

    return wrapped


def _check_source(context: Any, name: str, url: str, **named: Any) -> Any:
    known = {key: named[key] for key in ("tables", "schemas", "keys", "settings") if key in named}
    return source_check.check(url, place=(context, name), **known)


def _check_sink(context: Any, name: str, kind: str, **named: Any) -> Any:
    asked = ("settings", "source", "tables", "take_over", "on_schema_change", "skip_unfit")
    known = {key: named[key] for key in asked if key in named}
    return sink_check.check(context, name, kind, **known)


@pytest.fixture(scope="session", autouse=True)
def _checks_know() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "add", _foretold(source.add, _check_source))
        patch.setattr(sink, "add", _foretold(sink.add, _check_sink))
        yield
