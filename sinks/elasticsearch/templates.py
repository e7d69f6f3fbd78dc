"""Index templates of the cluster that would make something else of our indexes than what we ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.model.finding import Finding
from headrace.model.schema import TableId
from sinks.elasticsearch.client import Client, path
from sinks.elasticsearch.shown import cuts

__all__ = ["template_findings"]

_PIPELINES = ("default_pipeline", "final_pipeline")
_HINT = "Give the sink a prefix whose indexes the template does not match ({patterns}): --prefix NAME-"


@dataclass(frozen=True, slots=True)
class _Template:
    """A template as the cluster tells it; ``made`` is what one of the old kind adds to an index."""

    name: str
    patterns: tuple[str, ...]
    priority: int
    data_stream: bool = False
    made: str = ""

    def matches(self, index: str) -> bool:
        return any(
            re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), index) for pattern in self.patterns
        )


def template_findings(
    client: Client, indexes: Mapping[str, TableId | None], tables: int = 1
) -> list[Finding]:
    """Return what templates would do to indexes that are to be made.

    Of each template once when it takes an index of no single table, or those of several tables, which are
    all; else once for each table that it takes.

    Those of the old kind (``_template``) add up, and count where none of the new kind matches.

    Args:
        client: Of the cluster.
        indexes: The names that they are to have, and whose they are; None: of the sink.
        tables: How many tables the sink is asked about.

    Raises:
        SinkError: When the cluster does not tell.
    """
    told: Sequence[Mapping[str, Any]] = (
        client.request("GET", "/_index_template", see=(403, 404)).json().get("index_templates", ())
    )
    known = [_read(one) for one in told]
    old = [_read_old(name, about) for name, about in _old(client).items()]
    taken: dict[_Template, dict[TableId | None, str]] = {}
    for index, table in indexes.items():
        matching = [template for template in known if template.matches(index)]
        matching = [max(matching, key=lambda template: template.priority)] if matching else []
        for template in matching or [template for template in old if template.matches(index)]:
            taken.setdefault(template, {}).setdefault(table, index)
    return [
        finding
        for template, places in taken.items()
        for finding in _findings(client, template, places, whole=None in places or len(places) == tables > 1)
    ]


def _old(client: Client) -> Mapping[str, Mapping[str, Any]]:
    reply = client.request("GET", "/_template", see=(400, 403, 404))
    return reply.json() if reply.status == 200 else {}


def _read(told: Mapping[str, Any]) -> _Template:
    about = told["index_template"]
    return _Template(
        str(told["name"]),
        tuple(about.get("index_patterns", ())),
        int(about.get("priority", 0)),
        "data_stream" in about,
    )


def _read_old(name: str, about: Mapping[str, Any]) -> _Template:
    return _Template(
        name, tuple(about.get("index_patterns", ())), int(about.get("order", 0)), made=json.dumps(about)
    )


def _findings(
    client: Client, template: _Template, places: Mapping[TableId | None, str], *, whole: bool
) -> list[Finding]:
    """Return what a template does to an index of each table that it takes, or to one when all are meant."""
    index = next(iter(places.values()))
    places = {None: index} if whole else places
    hint = _HINT.format(patterns=", ".join(template.patterns))
    if template.data_stream:
        does = f"The index template {template.name} makes a data stream of"
        return [
            Finding.error("ES_TEMPLATE_DATA_STREAM", f"{does} {made}, which takes no updates.", hint, table)
            for table, made in places.items()
        ]
    if template.made:
        found = _changes(json.loads(template.made))
    else:
        told = client.request("POST", path("_index_template", "_simulate_index", index), see=(403,))
        if told.status == 403:
            message = f"What the index template {template.name} makes of {index} may not be looked at."
            hint = (
                "It must run no pipeline and keep whole documents."
                " The privilege manage_index_templates shows it."
            )
            return [Finding.warning("ES_TEMPLATE_UNSEEN", message, hint)]
        found = _changes(told.json()["template"])
    does = f"The index template {template.name} {' and '.join(found)} in"
    return [
        Finding.error("ES_TEMPLATE_CHANGES", f"{does} {made}; rows would not be equal.", hint, table)
        for table, made in places.items()
        if found
    ]


def _changes(made: Mapping[str, Any]) -> list[str]:
    """Return what settings and mappings would make of documents that are not stored as they are sent."""
    settings: Mapping[str, Any] = made.get("settings", {}).get("index", {})
    found = [
        f"sends documents through the pipeline {settings[name]}"
        for name in _PIPELINES
        if settings.get(name, "_none") != "_none"
    ]
    return found + cuts(made)
