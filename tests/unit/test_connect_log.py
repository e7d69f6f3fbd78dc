"""The last error of a source in the log of the local Connect, where several sources work side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.control.connect_log import last_error

RETRY = "WARN  AbstractWorkerSourceTask SourceTask{{id={}-0}} failed to poll records from SourceTask."
OVER = "Caused by: org.postgresql.util.PSQLException: This connection has been closed.\n\t... 9 more\n"
LOG = f"""\
2026-01-01 10:00:00.000 INFO  ErrorHandler Retry 1 of unlimited retries will be attempted
Caused by: org.postgresql.util.PSQLException: FATAL: of long ago
2026-01-01 10:00:05.000 ERROR ErrorHandler Producer failure
io.debezium.DebeziumException: org.postgresql.util.PSQLException: An I/O error occurred
\tat io.debezium.Some.call(Some.java:1)
Caused by: org.postgresql.util.PSQLException: FATAL: terminating connection
  Where: while reading
\t... 9 more
2026-01-01 10:00:06.000 {RETRY.format("headrace_shop")}
{OVER}\
2026-01-01 10:00:20.000 {RETRY.format("headrace_yard")}
{OVER}\
2026-01-01 10:00:30.000 ERROR ErrorHandler Producer failure
Caused by: org.postgresql.util.PSQLException: ERROR: of one of the two
2026-01-01 10:00:31.000 {RETRY.format("headrace_one")}
{OVER}\
2026-01-01 10:00:31.500 {RETRY.format("headrace_two")}
java.lang.Exception: It is over: postgres://u:secret@host/db
"""
SINCE = 1_767_261_600_000  # 2026-01-01 10:00 in UTC


@pytest.mark.parametrize(
    ("connector", "told"),
    [
        ("headrace_shop", "FATAL: terminating connection"),
        ("headrace_yard", "This connection has been closed."),
        ("headrace_two", "It is over: postgres://u:***@host/db"),
        ("headrace_sho", ""),
    ],
)
def test_the_cause_of_a_connectors_last_error_is_told(tmp_path: Path, connector: str, told: str) -> None:
    log = tmp_path / "connect.log"
    log.write_text(LOG)
    assert last_error(log, connector, SINCE) == told
    assert last_error(log, connector, SINCE + 60_000) == ""


def test_a_log_that_is_not_here_tells_nothing(tmp_path: Path) -> None:
    assert last_error(tmp_path / "none", "headrace_shop", SINCE) == ""
