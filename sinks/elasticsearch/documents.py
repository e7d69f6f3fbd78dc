"""Documents by id: found, not there, or not to be told just now, and the three are never mixed up.

A cluster that still recovers answers such a request with 200 and says only in the single documents
that it could not look. Taken for "not there", that would bury rows and revive deleted ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sinks.elasticsearch.client import Client, path

__all__ = ["Paging", "found_documents"]


class Paging:
    """How many ids a request asks for.

    Args:
        first: At first.
        most: At most; as many as at first when None.
        most_bytes: An answer that comes near to so much makes the next page smaller.
    """

    def __init__(self, first: int, most: int | None = None, most_bytes: int = 64 << 20) -> None:
        self.size = first
        self._most = most or first
        self._most_bytes = most_bytes

    def took(self, ids: int, size: int) -> None:
        """Note how many bytes the answer about so many ids had."""
        self.size = max(1, min(self._most, 8 * self.size, self._most_bytes * ids // max(size, 1)))


def found_documents(
    client: Client,
    alias: str,
    ids: Sequence[str],
    parse: Callable[[bytes], Any],
    *,
    page: Paging,
    source: bool,
) -> Iterator[dict[str, Any]]:
    """Yield the documents of ``ids`` that exist, as they were last written; no refresh is needed.

    Args:
        client: Where to ask.
        alias: What to read.
        ids: Of the documents.
        parse: Parser of an answer's bytes.
        page: How many ids there are in one request.
        source: Whether their contents are wanted beside id and version.

    Raises:
        SinkUnavailable: When the cluster cannot say of every id whether it exists.
        SinkError: When the index is gone.
    """
    target = path(alias, "_mget")
    if not source:
        # Only without contents: the filter makes the server write _source anew, numbers as doubles.
        target += "?_source=false&filter_path=docs._id,docs.found,docs._version,docs.error"
    start = 0
    while start < len(ids):
        asked = list(ids[start : start + page.size])
        start += len(asked)
        body = client.request("POST", target, {"ids": asked}).body
        page.took(len(asked), len(body))
        answer = parse(body)
        for document in answer.get("docs", ()):
            if "error" in document:
                raise Client.refusal(503, {"error": document["error"]})
            if document.get("found"):
                yield document
