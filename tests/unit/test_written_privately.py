"""Private files are the same whatever locale a process has, and none stays that could not be written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.config.pipeline import write_private
from headrace.local.jvm import settings_file


def test_letters_are_written_as_they_are_read_in_any_locale(tmp_path: Path) -> None:
    code = "from pathlib import Path; from headrace.config.pipeline import write_private; import sys;"
    code += "write_private(Path(sys.argv[1]), 'gr\\u00f6\\u00dfe \\u20ac')"
    environment = {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONPATH": str(Path.cwd()),
    }
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], env=environment, check=True)
    assert (tmp_path / "a").read_text(encoding="utf-8") == "größe €"


def test_what_could_not_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headrace.config.pipeline.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_private(tmp_path / "secret", "p4ssword")
    assert list(tmp_path.iterdir()) == []


def test_java_reads_the_letters_of_its_settings(tmp_path: Path) -> None:
    """It takes such a file for Latin-1."""
    made = settings_file(tmp_path / "config" / "a.properties", "log.dirs=/data/ü/𝄞\n", None)
    assert made.read_bytes() == b"log.dirs=/data/\\u00fc/\\ud834\\udd1e\n"
