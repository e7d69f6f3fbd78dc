"""Documents by id: found, not there, or not to be told just now, and the three are never mixed up.

A cluster that still recovers answers such a request with 200 and says only in the single documents
that it could not look. Taken for "not there", that would bury rows and revive deleted ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from sinks.elasticsearch.client import Client, path
from sinks.elasticsearch.paging import Paging

__all__ = ["found_documents"]

_FOR_GOOD = {"illegal_argument_exception": 400, "security_exception": 403}
"""Type of an error → its status, of those that asking again does not end: an alias of two indexes is one."""


def found_documents(
    client: Client,
    alias: str,
    ids: Sequence[str],
    parse: Callable[[bytes], Any],
    *,
    page: Paging,
    source: bool | str,
) -> Iterator[dict[str, Any]]:
    """Yield the documents of ``ids`` that exist, as they were last written; no refresh is needed.

    Args:
        client: Where to ask.
        alias: What to read.
        ids: Of the documents.
        parse: Parser of an answer's bytes.
        page: How many ids there are in one request.
        source: Whether their contents are wanted beside id and version; or the only field that is wanted,
            beside what a write may be made to depend on.

    Raises:
        SinkUnavailable: When the cluster cannot say of every id whether it exists.
        SinkError: When the index is gone.
    """
    target = path(alias, "_mget")
    if isinstance(source, str):
        wanted = ("_id", "found", "_version", "_seq_no", "_primary_term", "_source", "error")
        target += f"?_source_includes={source}&filter_path=" + ",".join(f"docs.{one}" for one in wanted)
    elif not source:
        # Only without contents: the filter makes the server write _source anew, numbers as doubles.
        target += "?_source=false&filter_path=docs._id,docs.found,docs._version,docs.error"
    start = 0
    while start < len(ids):
        left = ids[start:]
        reply, asked = page.ask(client, target, partial(_first, left))
        start += asked
        answer = parse(reply.body)
        for document in answer.get("docs", ()):
            if "error" in document:
                status = _FOR_GOOD.get(document["error"].get("type"), 503)
                raise Client.refusal(status, {"error": document["error"]})
            if document.get("found"):
                yield document


def _first(ids: Sequence[str], size: int) -> dict[str, list[str]]:
    return {"ids": list(ids[:size])}
