"""Environments of peers: what is pinned, what is the newest, and that an old one is told."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.bench.peers.consumer import Table, Task
from tests.bench.peers.environment import environment, newest, pinned, staleness


def _wheel(index: Path, name: str, version: str) -> None:
    info = f"{name}-{version}.dist-info"
    with ZipFile(index / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", f"__version__ = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def test_what_is_pinned_is_found(tmp_path: Path) -> None:
    requirements = tmp_path / "peer.txt"
    requirements.write_text("other-peer==9.9\npeer==1.2.3 \\\n    --hash=sha256:00\n")
    assert pinned(requirements, "peer") == "1.2.3"
    with pytest.raises(LookupError, match=r"peer\.txt does not pin none"):
        pinned(requirements, "none")


def test_the_newest_version_is_asked_of_the_index(tmp_path: Path) -> None:
    for version in ("1.2.3", "1.10.0"):
        _wheel(tmp_path, "peer", version)
    assert newest("peer", ("--no-index", "--find-links", str(tmp_path))) == "1.10.0"


def test_no_index_is_no_answer(tmp_path: Path) -> None:
    assert newest("peer", ("--no-index", "--find-links", str(tmp_path))) is None


def test_an_old_peer_is_told() -> None:
    assert staleness("peer", "1.2.3", "1.10.0")["stale"] == "peer 1.2.3 was measured, 1.10.0 is out"
    assert "stale" not in staleness("peer", "1.10.0", "1.10.0")
    assert "stale" not in staleness("peer", "1.10.0", None)


def test_an_environment_is_made_of_what_its_hashes_say(tmp_path: Path) -> None:
    _wheel(tmp_path, "peer", "1.2.3")
    right = sha256((tmp_path / "peer-1.2.3-py3-none-any.whl").read_bytes()).hexdigest()
    requirements = tmp_path / "peer.txt"
    lines = f"--no-index\n--find-links {tmp_path}\npeer==1.2.3 --hash=sha256:"
    requirements.write_text(lines + "0" * 64)
    with pytest.raises(RuntimeError, match=r"[Hh]ash"):
        environment(tmp_path, requirements)
    requirements.write_text(lines + right)
    home = environment(tmp_path, requirements)
    assert list(home.glob("lib/*/site-packages/peer/__init__.py"))
    assert environment(tmp_path, requirements) == home


def test_a_task_survives_its_way_to_the_consumer() -> None:
    tables = {"a.b": Table("plain-b", ("x", "y"), {"day": "date"}, 3)}
    task = Task("redis", "redis://localhost", "localhost:1", "group", tables, threads=1)
    assert Task.load(task.dump()) == task
