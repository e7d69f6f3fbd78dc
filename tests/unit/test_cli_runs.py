"""What the commands of a run say: of a dry run, of one that nobody waits for any more, of how far it is."""

from __future__ import annotations

import json
import shlex
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.cli import home as cli_home
from headrace.control.registry import Registry, ResnapshotEntry
from headrace.control.runs import reading, start
from headrace.control.runs.repository import Phase, change, insert, run_of
from headrace.control.snapshot import SnapshotState
from headrace.model.errors import SourceError
from tests.support.cold_home import add, cold_home, told
from tests.unit.test_run_sweeping import Shop

ORDERS = "shop.public.orders"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home of two sources whose servers have never run; nobody carries its runs out."""
    root = cold_home(tmp_path / "home")
    add(root, "shop", "postgresql://me@db.example:5432/shop", sinks=("cache", "search"))
    add(root, "depot", "postgresql://me@db.example:5432/depot", sinks=("other",))
    monkeypatch.setenv("HEADRACE_HOME", str(root))
    monkeypatch.setattr(cli_home, "_named", [])
    monkeypatch.setattr(start, "hand_over", lambda *_: None)
    monkeypatch.setattr(start, "refuse_not_streaming", lambda *_, **__: None)
    rows = SimpleNamespace(estimate_rows=lambda tables: dict.fromkeys(tables, 1_000), unfit_now=lambda _: {})
    monkeypatch.setattr(start, "source_of", lambda *_: rows)
    monkeypatch.setattr(start, "Kafka", lambda _: None)
    monkeypatch.setattr(start, "marks_of", lambda *_: [7])
    return root


def registry(home: Path) -> Registry:
    return Registry(home / "registry.db")


def begun(home: Path, source: str = "shop", table: str = "orders", **plan: Any) -> ResnapshotEntry:
    """Return a run that is under way."""
    sinks = [sink.name for sink in registry(home).sinks(source)]
    return insert(registry(home), source, [f"{source}.public.{table}"], sinks, queue=True, why="", **plan)


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def shows(run: ResnapshotEntry) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told("resnapshot", "show", run.id, "--json").stdout)
    return found


def refused(*words: str, code: int = 2) -> dict[str, str]:
    error: dict[str, str] = json.loads(told("resnapshot", *words, "--json", code=code).stderr)["error"]
    return error


@pytest.mark.parametrize(
    ("words", "within"),
    [
        *((words, "wait") for words in ("wait RUN", "resume RUN", "shop goods", "start shop goods")),
        ("shop goods", "hand_over"),
        ("shop goods --no-wait", "hand_over"),
    ],
)
def test_whoever_waits_no_longer_is_told_that_the_run_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch, words: str, within: str
) -> None:
    for step in ("wait", within):
        monkeypatch.setattr(start, step, interrupted)
    run = begun(home)
    result = told("resnapshot", *words.replace("RUN", run.id[:6]).split(), code=130)
    if "RUN" not in words:
        (run,) = [other for other in runs(home) if other.id != run.id]
    goes = (
        f"run {run.id} goes on; `headrace resnapshot wait {run.id}`, or `headrace resnapshot abort {run.id}`"
    )
    assert goes in result.stderr
    result = told("resnapshot", "wait", run.id, "--json", code=130)
    said = json.loads(result.stderr)
    assert (result.stdout, said["run"], said["interrupted"]) == ("", run.id, True)
    assert f"headrace resnapshot abort {run.id}" in said["hint"]


def runs(home: Path) -> list[ResnapshotEntry]:
    from headrace.control.runs.repository import all_of

    return all_of(registry(home), "shop")


def test_a_dry_run_is_refused_as_the_run_would_be(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = json.loads(told("resnapshot", "shop", "orders", "--dry-run", "--json").stdout)
    assert (plan["sinks"], plan["tables"], plan["rows"]) == (
        ["cache", "search"],
        {"public.orders": [7]},
        1_000,
    )
    run = begun(home)
    for words in (["shop", "orders"], ["shop"]):
        error = refused(*words, "--dry-run")
        assert (error["code"], error["hint"]) == (
            "RESNAPSHOT_TABLE_BUSY",
            f"headrace resnapshot wait {run.id}",
        )
        assert refused(*words) == error
    told("resnapshot", "shop", "goods", "--dry-run")
    told("resnapshot", "shop", "orders", "--queue", "--dry-run")

    def silent(*_: object, **__: object) -> None:
        raise SourceError(
            "It does not stream.", code="SOURCE_NOT_STREAMING", hint="headrace source resume shop"
        )

    monkeypatch.setattr(start, "refuse_not_streaming", silent)
    assert refused("shop", "goods", "--dry-run", code=1)["code"] == "SOURCE_NOT_STREAMING"
    assert len(runs(home)) == 1


def test_a_dry_run_that_would_leave_tables_out_ends_as_the_run_does(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_out = {"public.goods": "no"}
    plan = start.Plan("shop", {}, (), 1, left_out)
    monkeypatch.setattr(start, "plan", lambda *_, **__: plan)

    def waits(_: object, name: str, **__: object) -> ResnapshotEntry:
        return change(registry(home), name, {"left_out": left_out}, phase=Phase.COMPLETED)

    monkeypatch.setattr(start, "wait", waits)
    for words in ([], ["--dry-run"]):
        assert "public.goods" in told("resnapshot", "shop", *words, code=1).stdout
    for words in ([], ["--dry-run"]):
        told("resnapshot", "shop", *words, "--background")


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_table_that_the_sink_does_not_mirror_is_not_read_in_vain(home: Path, dry: list[str]) -> None:
    error = refused("shop", "people", "--sink", "cache", *dry)
    assert (error["code"], error["hint"]) == ("SINK_LACKS_TABLE", "headrace sink show cache")
    assert "public.people" in error["message"]
    error = refused("shop", "orders", "people", "--sink", "cache", *dry)
    assert "orders" not in error["message"]
    error = refused("shop", "orders", "--sink", "other", *dry)
    assert (error["code"], error["hint"]) == ("SINK_OF_OTHER_SOURCE", "Sinks of shop: cache, search.")
    assert runs(home) == []
    told("resnapshot", "shop", "people", "--background", *dry)
    told("resnapshot", "shop", "orders", "--sink", "cache", "--background", *dry)


def test_a_run_that_is_to_end_or_to_rest_says_so_before_it_does(home: Path) -> None:
    run = begun(home)
    change(registry(home), run.id, {"asked": True}, phase=Phase.READING)
    assert json.loads(told("resnapshot", "pause", run.id, "--json").stdout)["state"] == "pausing"
    change(registry(home), run.id, {"stopping": True, "asked": False})
    assert (shows(run)["state"], shows(run)["wanted"]) == ("pausing", "pause")
    change(registry(home), run.id, {"stopping": False})
    assert shows(run)["state"] == "paused"
    change(registry(home), run.id, {"asked": True, "ends": {ORDERS: [1]}}, phase=Phase.APPLYING)
    assert shows(run)["state"] == "paused", "the connector has nothing to stop any more"
    assert f"{run.id}  aborting" in told("resnapshot", "abort", run.id).stdout
    assert (shows(run)["state"], shows(run)["wanted"], shows(run)["phase"]) == (
        "aborting",
        "abort",
        "applying",
    )
    listed = json.loads(told("resnapshot", "list", "--json").stdout)
    assert [one["state"] for one in listed] == ["aborting"]
    change(registry(home), run.id, phase=Phase.ABORTED, wanted="")
    assert (shows(run)["state"], shows(run)["wanted"]) == ("aborted", "")


def test_a_run_says_how_far_it_is_and_at_what_pace(home: Path) -> None:
    run = begun(home, estimate=5_000, rows_per_second=300, max_latency_ms=20)
    wanted = {"estimate": 5_000, "rows_per_second": 300, "max_latency_ms": 20, "to_apply": None}
    assert {name: shows(run)[name] for name in wanted} == wanted
    change(
        registry(home),
        run.id,
        {"ends": {ORDERS: [40]}, "shadows": {"search": [ORDERS]}},
        phase=Phase.APPLYING,
    )
    progress = home / "progress"
    for name, settled in (("cache", 10), (f"search.r{run.id}t1", 25), ("search", 40)):
        said = {"state": "running", "updated_ms": 1, "offsets": {ORDERS: {"0": settled}}}
        (progress / f"{name}.json").write_text(json.dumps(said))
    assert shows(run)["to_apply"] == 30 + 15
    assert "to apply: 45" in told("resnapshot", "show", run.id).stdout
    run = change(registry(home), run.id)
    run.counts = {"swept": {"cache": {"public.orders": 0}}}
    change(registry(home), run.id, counts=run.counts)
    assert shows(run)["to_apply"] == 15


def test_a_run_goes_on_in_the_background_at_another_pace(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "wait", interrupted)
    run = begun(home, rows_per_second=300, max_latency_ms=20)
    change(registry(home), run.id, phase=Phase.UNFINISHED)
    for words, pace in (
        ("--background", (300, 20)),
        ("--no-wait --rows-per-second 500", (500, 20)),
        ("--background --rows-per-second 0 --max-latency-ms 0", (None, 0)),
    ):
        said = json.loads(told("resnapshot", "resume", run.id, *words.split(), "--json").stdout)
        assert (said["rows_per_second"], said["max_latency_ms"]) == pace
        assert said["state"] == "sweeping"
    told("resnapshot", "resume", run.id, code=130)


def test_a_wait_ends_in_time_and_the_run_goes_on(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun(home)
    error = refused("wait", run.id[:5], "--timeout", "0", code=1)
    assert (error["code"], error["hint"]) == ("RESNAPSHOT_NOT_DONE", f"headrace resnapshot wait {run.id}")
    assert error["message"] == f"After 0 s run {run.id} is still queued. It goes on."
    change(registry(home), run.id, phase=Phase.COMPLETED)
    told(*shlex.split(error["hint"])[1:])
    told("resnapshot", "wait", run.id, "--timeout", "0")


def test_runs_are_listed_by_state_and_the_newest_only(home: Path) -> None:
    first, second, third = (begun(home, table=name) for name in ("orders", "goods", "people"))
    for place, run in enumerate((first, second, third)):
        change(registry(home), run.id, begun_ms=place)
    change(registry(home), first.id, phase=Phase.FAILED)
    change(registry(home), second.id, wanted="pause")

    def listed(*words: str) -> list[str]:
        return [one["run"] for one in json.loads(told("resnapshot", "list", *words, "--json").stdout)]

    assert listed() == [third.id, second.id, first.id]
    assert listed("--limit", "2") == [third.id, second.id]
    assert listed("--state", "failed", "--state", "paused") == [second.id, first.id]
    assert listed("--state", "failed", "--limit", "1") == [first.id]
    assert "stopped" in told("resnapshot", "list", "--state", "stopped", code=2).stderr


@pytest.mark.parametrize(
    "words",
    [
        "--json list",
        "--source shop --json list",
        "--home HOME --json list",
        "--json --limit 3 list --source shop",
    ],
)
def test_options_before_a_command_are_that_commands(home: Path, words: str) -> None:
    run = begun(home)
    found = json.loads(told("resnapshot", *words.replace("HOME", str(home)).split()).stdout)
    assert [one["run"] for one in found] == [run.id]


def test_options_before_a_source_are_those_of_a_run_that_begins(home: Path) -> None:
    begun_ = json.loads(told("resnapshot", "--json", "--why", "list", "--background", "shop", "goods").stdout)
    assert (begun_["why"], begun_["tables"]) == ("list", ["public.goods"])
    told("resnapshot", "--background", "list", "orders", code=2)
    assert "SOURCE_UNKNOWN" in told("resnapshot", "--background", "--", "list", "orders", code=2).stderr


def test_a_pace_that_a_person_changes_is_kept_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, orders = Shop(tmp_path), list[str]()
    monkeypatch.setattr(start, "hand_over", lambda *_: None)
    plan = {"signal": "s", "asked": True, "rows_per_second": 1, "ends": None}
    change(shop.registry, shop.job.name, plan, phase=Phase.READING)
    state = SimpleNamespace(
        state=SnapshotState.RUNNING, unread=lambda _: {}, scanned={}, chunks={}, trouble={}
    )
    source: Any = SimpleNamespace(
        steer_snapshot=lambda _, order, __: orders.append(order), answer_seconds=lambda: 0.0
    )
    connect = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(shop.context, "connect_url", "", raising=False)
    monkeypatch.setattr(reading, "Told", lambda *_: SimpleNamespace(incremental=lambda _: state))
    monkeypatch.setattr(reading, "Connect", lambda *_, **__: closing(connect))
    monkeypatch.setattr(reading, "_trouble_of", lambda *_: "")
    monkeypatch.setattr(reading, "time", shop.time)

    def faster() -> None:
        if orders[-1] == "resume":
            state.state = SnapshotState.COMPLETED
        else:
            start.resume(shop.context, shop.job.name, rows_per_second=None)

    shop.time.meanwhile = faster
    assert reading._watch(shop.job, source, cast("Any", None))
    assert orders == ["pause", "resume"]
    assert run_of(shop.registry, shop.job.name).plan["rows_per_second"] is None
