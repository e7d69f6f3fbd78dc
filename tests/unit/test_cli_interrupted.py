"""Ctrl-C ends a command with 130, and says what is left of what it had begun."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.cli import home as cli_home
from headrace.cli.output import fails_clearly
from headrace.control import sink, source
from headrace.control.adding import note
from headrace.control.begun import Before, begin
from headrace.control.capture import capture_of
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.control.registry import Adding, Registry, ResnapshotEntry
from tests.support.cold_home import add, cold_home, told
from tests.support.waiting import until

URL = "postgresql://me@db.example:5432/shop"
SINK = ("sink", "add", "cache", "--kind", "redis", "--url", "redis://cache.example", "--source", "shop")
SOURCE = ("source", "add", "depot", URL)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home with a source, whose servers have never run."""
    root = cold_home(tmp_path / "home")
    add(root, "shop", URL)
    monkeypatch.setenv("HEADRACE_HOME", str(root))
    monkeypatch.setattr(cli_home, "_named", [])
    return root


def ends(monkeypatch: pytest.MonkeyPatch, module: Any, leaves: Any = lambda _: None) -> None:
    """Have ``add`` of a module be interrupted when it has done something."""

    def interrupted(context: Context, *_: object, **__: object) -> Any:
        leaves(context)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "add", interrupted)


@pytest.mark.parametrize(("words", "module"), [(SINK, sink), (SOURCE, source)])
def test_an_add_that_is_taken_back_says_so(
    words: tuple[str, ...], module: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends(monkeypatch, module)
    said = told(*words, code=130)
    assert f"what was made for {words[0]} {words[2]} is taken back" in said.stderr
    assert said.stdout == ""
    said = told(*words, "--json", code=130)
    told_ = json.loads(said.stderr)
    assert (told_[words[0]], told_["interrupted"], told_["hint"]) == (words[2], True, "")
    assert said.stdout == ""


def test_an_add_that_goes_on_says_what_waits_and_what_ends_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def adds(context: Context) -> None:
        add(home, "depot", URL)
        registry = Registry(context.registry)
        note(registry, registry.source("depot"), Adding.STARTED)

    ends(monkeypatch, source, adds)
    said = told(*SOURCE, code=130).stderr
    assert "source depot goes on; the same command waits on" in said
    assert "`headrace source remove depot` ends it" in said
    ends(monkeypatch, sink, lambda _: add(home, "more", URL, sinks=("cache",)))
    hint = json.loads(told(*SINK, "--json", code=130).stderr)["hint"]
    assert "`headrace sink remove cache` ends it" in hint


def test_a_source_that_is_added_and_loads_by_a_run_says_what_waits_for_that(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command would be refused: the name is taken."""
    ends(monkeypatch, source, lambda _: add(home, "depot", URL))
    assert "`headrace lag` tells how far it is" in told(*SOURCE, code=130).stderr
    registry = Registry(home / "registry.db")
    with registry.begin() as session:
        session.add(ResnapshotEntry(id="r1", source="depot", phase="reading", begun_ms=1, plan={}))
    ends(monkeypatch, source)
    assert "`headrace resnapshot wait r1` waits on" in told(*SOURCE, code=130).stderr


def test_what_could_not_be_taken_back_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def noted(context: Context) -> None:
        registry = Registry(context.registry)
        capture = capture_of(context, registry.source("shop"))
        begin(registry, replace(capture, source="depot"), "postgres", URL, Before())

    ends(monkeypatch, source, noted)
    said = told(*SOURCE, code=130).stderr
    assert "may be there still; `headrace source remove depot` takes it back" in said


@pytest.mark.parametrize("as_json", [False, True])
def test_a_question_that_is_interrupted_removes_nothing(as_json: bool, home: Path) -> None:
    """In a terminal: only there a person is asked, and only there Ctrl-C is a key."""
    words = ["source", "remove", "shop", *(["--json"] if as_json else [])]
    run = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    run += "from headrace.cli.main import run; run()"
    ours, theirs = pty.openpty()
    with (
        (home / "said").open("w") as to,
        subprocess.Popen(
            [sys.executable, "-c", run, *words],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=to,
            text=True,
            env={**os.environ, "HEADRACE_HOME": str(home)},
        ) as command,
    ):
        until(lambda: "Go on?" in (home / "said").read_text())
        command.send_signal(signal.SIGINT)
        out, _ = command.communicate()
    os.close(ours)
    os.close(theirs)
    said = (home / "said").read_text()
    assert (command.returncode, out.strip()) == (130, ""), said
    if as_json:
        error = json.loads(said.splitlines()[-1])["error"]
        assert (error["code"], error["message"]) == ("INTERRUPTED", "Nothing was removed.")
        assert "--yes" in error["hint"]
    else:
        assert "Nothing was removed." in said
    assert "Traceback" not in said
    assert Registry(home / "registry.db").source("shop")


def test_what_a_library_in_c_makes_of_an_interruption_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    @fails_clearly
    def command() -> None:
        raise SystemError("a method returned a result with an exception set") from KeyboardInterrupt()

    with pytest.raises(KeyboardInterrupt):
        command()
    assert "INTERNAL" not in capsys.readouterr().err


def test_it_is_one_for_whoever_asks_kafka_already() -> None:
    """Who waits for what Kafka tells has something to say, or to take back, when somebody ends that."""

    class Interrupted:
        closed = False

        def assign(self, _: object) -> None: ...

        def poll(self, _: float) -> None:
            raise SystemError("a method returned a result with an exception set") from KeyboardInterrupt()

        def close(self) -> None:
            self.closed = True

    consumer, kafka = Interrupted(), Kafka("127.0.0.1:1")
    kafka._idle.append(cast("Any", consumer))
    with pytest.raises(KeyboardInterrupt):
        kafka.firsts({("t", 0): 0})
    assert consumer.closed
