"""The log of a server that a test has started by itself is not lost with its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.own_servers import LOGS, shown


def test_a_failure_shows_the_end_of_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    with shown(log):
        log.write_text("all is well\n")
        assert [log] == LOGS
    assert "all is well" not in capsys.readouterr().out
    with pytest.raises(AssertionError), shown(log):
        raise AssertionError
    assert "all is well" in capsys.readouterr().out
    assert LOGS == []
