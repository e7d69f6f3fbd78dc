"""``headrace psql`` becomes the real psql: its signals and its exit code are nobody else's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import ended

WITHOUT_DATABASE = """
from types import SimpleNamespace
from headrace.cli import psql
psql._database = lambda *_: SimpleNamespace(password="secret", address="postgresql://me@h/d")
from headrace.cli.main import run
run()
"""
RUN = [sys.executable, "-c", WITHOUT_DATABASE, "psql"]
PSQL = """#!/bin/sh
trap 'echo cancelled; read line; echo "said $line"; exit 7' INT
echo "$$ $PGPASSWORD $*"
while :; do sleep 0.05; done
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose psql goes on after Ctrl-C."""
    (tmp_path / "psql").write_text(PSQL)
    (tmp_path / "psql").chmod(0o700)
    return {
        **os.environ,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
    }


def test_ctrl_c_ends_what_is_asked_and_not_the_session(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        RUN,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as session:
        assert session.stdin is not None
        assert session.stdout is not None
        pid, password, address, *_ = session.stdout.readline().split()
        assert (password, "secret" in address) == ("secret", False)
        os.killpg(session.pid, signal.SIGINT)  # as a terminal does: everybody who is in front of it
        assert session.stdout.readline() == "cancelled\n"
        session.stdin.write("on\n")
        session.stdin.flush()
        assert session.stdout.readline() == "said on\n"
        assert ended(session) == 7
        assert int(pid) == session.pid
