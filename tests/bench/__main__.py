"""``python -m tests.bench``: measures, writes each result down, and makes ``docs/benchmarks.md`` of them.

    python -m tests.bench                     the headline results
    python -m tests.bench --full              all results, in larger sizes where there are some
    python -m tests.bench --only 'raw.*'      what matches a pattern: benchmarks, groups or results
    python -m tests.bench --only apply --store redis    applying to one store
    python -m tests.bench --list              what there is
    python -m tests.bench render FILE…        the page anew from results that were measured before

Exits with 1 when a result failed or what was written differs from what should have been.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from headrace.local.cache import cache_root
from tests.bench.aims import AIMS, judge
from tests.bench.conduct import Conductor
from tests.bench.host import ROOT, commit, host
from tests.bench.journal import Entry, Run, append, newest, now, read
from tests.bench.page.page import write
from tests.bench.page.words import each, ratio, span
from tests.bench.suite import Benchmark, Setting, chosen, registered

OUT = ROOT / "docs" / "benchmarks"
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = "results.jsonl"
_PARTS = frozenset({"raw", "apply", "scale"})
"""Groups that start single servers only."""


def main(arguments: Sequence[str]) -> int:
    """Do what the command line asks for and return the exit code."""
    os.environ.setdefault("HEADRACE_JIT", "full")  # what is measured is the long run
    console = Console(stderr=True)
    if arguments[:1] == ["render"]:
        return _render(arguments[1:])
    asked = _parser().parse_args(arguments)
    benchmarks = registered()
    todo = _todo(benchmarks, asked)
    if asked.list:
        console.print(_listed(benchmarks, todo))
        return 0
    if not todo:
        console.print("nothing matches; --list shows what there is")
        return 2
    minutes = sum(benchmark.minutes for benchmark in todo) * asked.runs / 5
    console.print(f"{len(todo)} benchmarks, about {minutes:.0f} min")
    results = asked.out / RESULTS

    def keep(entry: Entry) -> None:
        append(results, entry)
        _tell(console, entry)

    run = Run(now(), commit(), host(), asked.runs, asked.full)
    setting = Setting(cache_root() / "bench", asked.runs, asked.full, _say(console))
    conductor = Conductor(run, setting, keep)
    if any(benchmark.group not in _PARTS for benchmark in todo):
        _train(setting.say)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that servers are stopped then, too
    try:
        good = conductor.conduct(todo)
    except KeyboardInterrupt:
        console.print(f"interrupted; {results} keeps what is there")
        good = False
    entries = list(read([results]))
    if asked.page is not None:
        write(entries, benchmarks, asked.page)
        console.print(f"written: {asked.page}")
    for name in conductor.failed:
        console.print(f"[bold red]FAILED[/] {name}")
    return 0 if good else 1


def _train(say: Callable[[str], None]) -> None:
    """Let every JVM learn what it starts from now; a whole stack would do it beside what is measured."""
    say("training the servers' JVMs, unless that was done before: up to some minutes")
    subprocess.run([sys.executable, "-m", "headrace.local.training"], check=False, stdout=subprocess.DEVNULL)
    os.environ["HEADRACE_TRAINING"] = "off"


def _say(console: Console) -> Callable[[str], None]:
    # Whoever keeps the output wants lines as they are, and what others say is no markup.
    return lambda text: console.print(text, soft_wrap=True, markup=False, highlight=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--full", action="store_true", help="everything, in larger sizes where there are some"
    )
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="what matches")
    parser.add_argument("--store", metavar="NAME", help="of applying: elasticsearch, redis or delta")
    parser.add_argument("--runs", type=int, default=5, help="samples of each side (default: 5)")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help=f"where {RESULTS} grows")
    parser.add_argument(
        "--page", type=Path, help="the page to write (default: docs/benchmarks.md with its own results)"
    )
    parser.add_argument("--list", action="store_true", help="show what there is; * is what would be measured")
    return parser


def _todo(benchmarks: Sequence[Benchmark], asked: argparse.Namespace) -> tuple[Benchmark, ...]:
    if asked.page is None and asked.out == OUT:
        asked.page = PAGE
    patterns = list(asked.only)
    if asked.store:
        patterns = [f"apply.{asked.store}*"]
    return chosen(benchmarks, full=asked.full, only=patterns)


def _listed(benchmarks: Sequence[Benchmark], todo: Sequence[Benchmark]) -> Table:
    table = Table("", "benchmark", "group", "min", "", "results", box=None)
    for each_one in benchmarks:
        table.add_row(
            "*" if each_one in todo else "",
            each_one.name,
            each_one.group,
            f"{each_one.minutes:g}",
            "headline" if each_one.headline else "",
            " ".join(each_one.results),
        )
    return table


def _tell(console: Console, entry: Entry) -> None:
    say, result = _say(console), entry.result
    if not result.counts:
        say(f"  FAILED {result.name}: {result.failure or 'what was written differs'}")
        return
    say(f"  {result.name}: {entry.seconds:.0f} s, load {entry.load[0]} → {entry.load[1]}")
    for name, side in result.sides.items():
        if not side.samples:
            continue
        against = ""
        if name != "headrace" and "headrace" in result.sides:
            own = result.sides["headrace"]
            if len(own.samples) == len(side.samples):
                against = f"; ours is {ratio(result.ratio('headrace', name))} of it"
        say(f"    {name}: {span(side.spread)} {result.unit}{against}; CPU-s/M: {each(side.processor_s)}")
    for aim in AIMS:
        if aim.result == result.name:
            verdict, _ = judge(aim, {result.name: result})
            say(f"    aim {verdict}: {aim.what}")


def _render(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench render")
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--page", type=Path, default=PAGE)
    asked = parser.parse_args(arguments)
    entries = list(read(asked.files))
    write(entries, registered(), asked.page)
    return 0 if all(entry.result.counts for entry in newest(entries)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
