"""The benchmark suite believes nothing: not a lost row, not a benchmark that dies, not half a line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.bench.aims import AIMS, Aim, judge
from tests.bench.apply.cpu import Sampler
from tests.bench.apply.products import PHASES, Batches, batches
from tests.bench.apply.rounds import Side as Writer
from tests.bench.apply.rounds import measure
from tests.bench.conduct import Conductor
from tests.bench.host import ROOT, Commit, host
from tests.bench.journal import Entry, Run, append, newest, now, read
from tests.bench.meter import Meter, race
from tests.bench.page.page import page, write
from tests.bench.results import Result, Side
from tests.bench.suite import Benchmark, Setting, chosen, registered

RUN = Run(now(), Commit("a" * 40, changed=False), host(), 5, full=False)


def result(name: str = "apply.paper.insert", **changed: object) -> Result:
    told = {
        "what": "new rows on paper",
        "unit": "rows/s",
        "sides": {"headrace": Side((90.0, 100.0, 80.0)), "guarded": Side((100.0, 100.0, 100.0))},
        "equal": True,
    }
    return Result(name, **{**told, **changed})  # type: ignore[arg-type]


def entry(found: Result, ended: str = "2026-01-01T00:00:00+00:00") -> Entry:
    return Entry(RUN, "apply.paper", "apply", ended, 1.5, (0.5, 1.0), found)


def benchmark(
    run: Callable[[Setting], Iterable[Result]], *promises: str, name: str = "apply.paper"
) -> Benchmark:
    return Benchmark(name, "apply", 0.1, headline=True, run=run, promises=promises)


def conducted(path: Path, *benchmarks: Benchmark) -> tuple[bool, list[Entry]]:
    conductor = Conductor(RUN, Setting(path.parent, runs=2), lambda found: append(path, found))
    return conductor.conduct(benchmarks), list(read([path]))


class Paper:
    """A store in memory; one that loses rows says that it has written them."""

    sampler: Sampler | None = None

    def __init__(self, name: str, work: Batches, *, loses: int = 0) -> None:
        self.name = name
        self._work = work
        self._loses = loses
        self._rows: dict[str, object] = {}

    def open(self) -> None:
        self._rows = {}

    def write(self, phase: str, number: int) -> None:
        for change in self._work[phase][number][self._loses :]:
            if phase == "delete":
                self._rows.pop(change.key.id, None)
            else:
                self._rows[change.key.id] = change.row

    def content(self) -> dict[str, object]:
        return dict(self._rows)

    def close(self) -> None:
        self._rows = {}


def papers(*, loses: int) -> Callable[[Setting], Iterator[Result]]:
    def run(setting: Setting) -> Iterator[Result]:
        work = batches(50)
        sides: list[Writer] = [Paper("ours", work, loses=loses), Paper("guarded", work), Paper("plain", work)]
        return measure("paper", sides, work, setting.runs, Meter({}))

    return run


PROMISED = tuple(f"apply.paper.{phase}" for phase in PHASES)


def test_what_is_equal_is_measured(tmp_path: Path) -> None:
    good, entries = conducted(tmp_path / "results", benchmark(papers(loses=0), *PROMISED))
    assert good
    assert [found.result.name for found in entries] == list(PROMISED)
    first = entries[0].result
    assert first.equal
    assert {name: len(side.samples) for name, side in first.sides.items()} == {
        "headrace": 2,
        "guarded": 2,
        "plain": 2,
    }
    assert first.sides["headrace"].peak_mib["client"] > 10


def test_a_lost_row_fails_the_run_and_is_told_on_the_page(tmp_path: Path) -> None:
    lossy = benchmark(papers(loses=1), *PROMISED)
    good, entries = conducted(tmp_path / "results", lossy)
    assert not good
    assert {found.result.equal for found in entries} == {False}
    told = page(entries, [lossy], drawn=())
    assert "| `apply.paper.insert` | **FAILED** | after insert, ours holds 49 rows, not 50 |" in told
    assert "rows/s" not in told


def test_a_difference_is_an_exit_code(tmp_path: Path) -> None:
    from tests.bench.__main__ import main

    file = tmp_path / "results"
    append(file, entry(result(equal=False)))
    assert main(["render", str(file), "--page", str(tmp_path / "page.md")]) == 1
    assert "**FAILED**" in (tmp_path / "page.md").read_text()


def test_a_benchmark_that_dies_leaves_the_others_alone(tmp_path: Path) -> None:
    def dies(_: Setting) -> Iterator[Result]:
        yield result("apply.paper.insert")
        raise RuntimeError(f"{ROOT}/store is gone")

    first = benchmark(dies, "apply.paper.insert", "apply.paper.update")
    second = benchmark(lambda _: [result("apply.stone.insert")], "apply.stone.insert", name="apply.stone")
    good, entries = conducted(tmp_path / "results", first, second)
    assert not good
    assert [(e.result.name, e.result.failure) for e in entries] == [
        ("apply.paper.insert", None),
        ("apply.paper.update", "RuntimeError: ./store is gone"),
        ("apply.stone.insert", None),
    ]


def test_what_was_promised_and_did_not_come_is_missed(tmp_path: Path) -> None:
    silent = benchmark(lambda _: [])
    good, entries = conducted(tmp_path / "results", silent)
    assert not good
    assert [e.result.failure for e in entries] == ["it ended without this result"]
    assert "| `apply.paper` | not measured |" in page([], [silent], drawn=())


def test_a_run_that_was_cut_keeps_what_it_has(tmp_path: Path) -> None:
    file = tmp_path / "results"
    append(file, entry(result("one")))
    append(file, entry(result("two")))
    file.write_bytes(file.read_bytes()[:-40])
    assert [found.result.name for found in read([file])] == ["one"]
    append(file, entry(result("three")))
    assert [found.result.name for found in read([file])] == ["one", "three"]


def test_another_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "results"
    file.write_text('{"whole": "but something else"}\n')
    with pytest.raises(ValueError, match="line 1"):
        list(read([file]))


def test_an_entry_is_the_same_after_a_round_trip() -> None:
    before = entry(result(settings={"rows": 3}, versions={"paper": "1"}))
    assert Entry.from_dict(json.loads(json.dumps(before.as_dict()))) == before


def test_the_newest_result_counts_be_it_a_failure() -> None:
    good, bad = (
        entry(result(), "2026-01-01T00:00:00+00:00"),
        entry(result(equal=False), "2026-01-02T00:00:00+00:00"),
    )
    assert newest([bad, good]) == [bad]


def test_figures_of_two_machines_are_not_shown_together() -> None:
    elsewhere = Run(now(), Commit("b" * 40, changed=False), {**host(), "cores": 64}, 5, full=False)
    big = Entry(
        elsewhere, "apply.x", "apply", "2025-01-01T00:00:00+00:00", 1.0, (0.0, 0.0), result("elsewhere")
    )
    told = page([big, entry(result("here"))], [], drawn=())
    assert "`here`" in told
    assert "`elsewhere`" not in told


def test_an_old_peer_is_reported() -> None:
    old = entry(result(settings={"stale": "pgsync 7.1.0 was measured, 7.3.0 is out"}))
    assert "**stale**: pgsync 7.1.0 was measured, 7.3.0 is out." in page([old], [], drawn=())
    assert "stale" not in page([entry(result())], [], drawn=())


def test_a_page_is_made_twice_alike_and_has_its_plots(tmp_path: Path) -> None:
    entries = [entry(result())]
    write(entries, [], tmp_path / "page.md")
    plot = tmp_path / "images" / "bench" / "apply-ratios.svg"
    once = (tmp_path / "page.md").read_text(), plot.read_text()
    (tmp_path / "images" / "bench" / "of-old.svg").write_text("<svg/>")
    write(entries, [], tmp_path / "page.md")
    assert ((tmp_path / "page.md").read_text(), plot.read_text()) == once
    assert [path.name for path in plot.parent.iterdir()] == [plot.name]
    assert f"(images/bench/{plot.name})" in once[0]
    assert "prefers-color-scheme: dark" in once[1]


def test_aims_are_judged_by_the_median() -> None:
    aim = Aim("paper", "apply.paper.insert", over="guarded", least=0.9)
    found = result()
    assert judge(aim, {found.name: found})[0] == "reached"
    strict = Aim("paper", "apply.paper.insert", over="guarded", least=0.95)
    assert judge(strict, {found.name: found})[0] == "missed"
    assert judge(strict, {})[0] == "not measured"
    assert judge(strict, {found.name: result(equal=False)})[0] == "FAILED"
    assert judge(Aim("x", found.name, over="nobody", least=1.0), {found.name: found})[0] == "not measured"


def test_lag_may_be_behind_another_by_so_much() -> None:
    lag = result(unit="ms", sides={"headrace": Side((300.0, 350.0)), "pgsync": Side((100.0, 200.0))})
    aim = Aim("lag", lag.name, over="pgsync", how="gap", most=200.0)
    assert judge(aim, {lag.name: lag})[0] == "reached"


def test_a_missed_aim_says_by_how_much_and_what_is_to_blame() -> None:
    aim = Aim("paper ≥ 1.0", "apply.paper.insert", over="guarded", least=1.0, blame="the ink")
    told = page([entry(result())], [], aims=[aim], drawn=())
    assert "| paper ≥ 1.0 | 0.90 (0.80–1.00) | **missed** | 10% | the ink | `apply.paper.insert` |" in told


def test_every_way_of_a_race_comes_first_in_turn_and_warms_up() -> None:
    order: list[str] = []

    def way(name: str) -> Callable[[], int]:
        def run() -> int:
            order.append(name)
            return 10

        return run

    sides = race({name: way(name) for name in "abc"}, 2, Meter({}))
    assert "".join(order) == "abcbcacab"
    assert [len(side.samples) for side in sides.values()] == [2, 2, 2]
    assert list(sides) == ["a", "b", "c"]


def test_names_are_unique_and_every_aim_is_somebodys() -> None:
    benchmarks = registered()
    names = [name for found in benchmarks for name in found.results]
    assert len(names) == len(set(names))
    assert len({found.name for found in benchmarks}) == len(benchmarks)
    for aim in AIMS:
        assert (aim.least is None) != (aim.most is None), aim.what
        assert aim.result in names, aim.what


def test_patterns_choose_benchmarks_groups_and_results() -> None:
    found = registered()
    assert {b.group for b in chosen(found, only=["apply"])} == {"apply"}
    assert [b.name for b in chosen(found, only=["apply.redis.*"])] == ["apply.redis.json", "apply.redis.hash"]
    assert [b.name for b in chosen(found, only=["apply.delta.insert"])] == ["apply.delta"]
    assert set(chosen(found)) == {b for b in found if b.headline}
    assert chosen(found, full=True) == found


def test_the_command_lists_what_it_would_measure(capsys: pytest.CaptureFixture[str]) -> None:
    from tests.bench.__main__ import main

    assert main(["--list", "--store", "redis"]) == 0
    marked = [
        line.split()[1] for line in capsys.readouterr().err.splitlines() if line.lstrip().startswith("*")
    ]
    assert marked == ["apply.redis.json", "apply.redis.hash"]
    assert main(["--only", "no such thing", "--out", "nowhere"]) == 2


def test_the_page_is_made_of_the_results_beside_it() -> None:
    results = ROOT / "docs" / "benchmarks" / "results.jsonl"
    told = page(read([results]), registered())
    assert (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8") == told, "run `make docs`"
