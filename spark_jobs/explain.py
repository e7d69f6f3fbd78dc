"""Why a query ended: Spark's exception → a sentence, a code and a hint."""

from __future__ import annotations

import re

from headrace.model.errors import HeadraceError

__all__ = ["TOPIC_MISSING", "explain"]

TOPIC_MISSING = "TOPIC_MISSING"

_ERROR = re.compile(r"^[\w.]+(Error|Exception|Warning|Unavailable): ")

_KNOWN = (
    (
        ("failOnDataLoss", "OffsetOutOfRange", "KAFKA_DATA_LOSS", "may have been missed"),
        "KAFKA_DATA_LOST",
        "Kafka no longer holds records that this sink has not read.",
        "Run `headrace resnapshot SOURCE`: a gap in history is closed only by reading the tables again.",
    ),
    (
        ("UnknownTopicOrPartition",),
        TOPIC_MISSING,
        "A topic of this pipeline does not exist.",
        "Is the connector registered? `headrace source show SOURCE` tells.",
    ),
    (
        (
            "TimeoutException",
            "DisconnectException",
            "bootstrap.servers",
            "Failed to create new KafkaAdminClient",
        ),
        "KAFKA_UNREACHABLE",
        "Kafka does not answer.",
        "`headrace status` shows the broker; the query starts again by itself.",
    ),
    (
        ("Python worker exited unexpectedly",),
        "WORKER_DIED",
        "A Python worker process died in the middle of a batch.",
        "The batch runs again; if this repeats, look at the engine's log for memory.",
    ),
    (
        ("No space left on device",),
        "DISK_FULL",
        "The disk is full.",
        "Free some space; the query starts again by itself and has lost nothing.",
    ),
)


def explain(error: BaseException | None) -> dict[str, str]:
    """Return ``{"code", "message", "hint"}`` for whatever ended a query."""
    if error is None:
        return {
            "code": "QUERY_ENDED",
            "message": "The query ended without an error.",
            "hint": "It is started again.",
        }
    if isinstance(error, HeadraceError):
        return error.as_dict()
    text = str(error)
    for traces, code, message, hint in _KNOWN:
        if any(trace in text for trace in traces):
            return {"code": code, "message": message, "hint": hint}
    message = _sentence(text) or type(error).__name__
    return {"code": "QUERY_FAILED", "message": message, "hint": "The engine's log has the whole story."}


def _sentence(text: str) -> str:
    """Return the line that says what happened: the one that ends a Python traceback, else the first.

    Of several tracebacks the last is meant: the others are its causes.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = lines[0][:300] if lines else ""
    in_traceback = False
    for line in lines:
        if "Traceback (most recent call last)" in line:
            in_traceback = True
        elif in_traceback and not line.startswith(("File ", "^", "~")) and _ERROR.match(line):
            said, in_traceback = line[:300], False
    return said
