"""The last error of a source in the log of the local Connect, where several sources work side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.control.connect_log import last_error

LOG = """\
2026-01-01 10:00:00.000 INFO  AbstractConnector [shop] Retrying
2026-01-01 10:00:01.000 ERROR ErrorHandler [shop] Producer failure
io.debezium.DebeziumException: org.postgresql.util.PSQLException: An I/O error occurred
\tat io.debezium.Some.call(Some.java:1)
Caused by: org.postgresql.util.PSQLException: FATAL: terminating connection
  Where: while reading
\t... 9 more
2026-01-01 10:00:02.000 ERROR ErrorHandler [yard] Producer failure
io.debezium.DebeziumException: of another source
2026-01-01 10:00:03.000 ERROR WorkerTask of nobody's
Caused by: java.lang.Exception: of nobody
2026-01-01 10:00:04.000 ERROR Engine [bare] It is over: postgres://u:secret@host/db
"""

SINCE = 1_767_261_600_000  # 2026-01-01 10:00 in UTC


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("shop", "FATAL: terminating connection"),
        ("yard", "of another source"),
        ("bare", "It is over: postgres://u:***@host/db"),
        ("sho", ""),
    ],
)
def test_the_cause_of_a_sources_last_error_is_told(tmp_path: Path, source: str, told: str) -> None:
    log = tmp_path / "connect.log"
    log.write_text(LOG)
    assert last_error(log, source, SINCE) == told
    assert last_error(log, source, SINCE + 60_000) == ""


def test_a_log_that_is_not_here_tells_nothing(tmp_path: Path) -> None:
    assert last_error(tmp_path / "none", "shop", SINCE) == ""
