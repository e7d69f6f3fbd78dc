"""The code with which a server does not let us in, which says the same in every language.

The library keeps it to itself and hands on words, in the server's language. What the server has told, code
and all, stands in the library's trace. So the server is asked once more, with a trace in memory, which is
gone afterwards: it may hold a password.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Mapping

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

__all__ = ["code_of_refusal"]

_WITHIN_S = 5.0
_TOLD = re.compile(rb'\tErrorResponse\t S "[^\n]*? C "([0-9A-Z]{5})" M "')
_MOST = 1 << 20
_OVER = (pq.PollingStatus.OK, pq.PollingStatus.FAILED)


def code_of_refusal(known: Mapping[str, str]) -> str:
    """Return the ``SQLSTATE`` with which the server refuses a connection now.

    It is empty when the server lets us in, does not answer within five seconds, or cannot be asked so: by a
    library older than that of Postgres 18, or on a system other than Linux.

    Args:
        known: Connection parameters.
    """
    if not hasattr(os, "memfd_create"):
        return ""
    trace = os.memfd_create("headrace")
    try:
        connection = pq.PGconn.connect_start(make_conninfo("", **known).encode())
        try:
            _ask(connection, trace)
        finally:
            connection.finish()
        found = _TOLD.findall(os.pread(trace, _MOST, 0))
    except (psycopg.Error, OSError):
        return ""
    finally:
        os.close(trace)
    return found[-1].decode() if found else ""


def _ask(connection: pq.abc.PGconn, trace: int) -> None:
    connection.trace(trace)
    until = time.monotonic() + _WITHIN_S
    while connection.status != pq.ConnStatus.BAD and (state := connection.connect_poll()) not in _OVER:
        line = [connection.socket]
        reads, writes = (line, []) if state == pq.PollingStatus.READING else ([], line)
        if not any(select.select(reads, writes, [], max(0.0, until - time.monotonic()))):
            return
    connection.untrace()
