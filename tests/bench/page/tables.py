"""The tables of the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.bench.aims import AIMS, Aim, judge
from tests.bench.journal import Entry, Run
from tests.bench.page.words import amount, each, ratio, span, table
from tests.bench.results import Result, Side

__all__ = [
    "OURS",
    "absolutes",
    "aims",
    "failures",
    "missing",
    "ratios",
    "runs",
    "settings",
    "stale_peers",
    "versions",
]

OURS = "headrace"
_UNITS = {"ms": " ms", "s": " s", "": ""}


def _by_name(entries: Iterable[Entry]) -> dict[str, Result]:
    return {entry.result.name: entry.result for entry in entries}


def aims(entries: Sequence[Entry], chosen: Sequence[Aim] = AIMS) -> str:
    """Return how many aims are reached, and what each came to."""
    results = _by_name(entries)
    counts = dict.fromkeys(("reached", "missed", "FAILED", "not measured"), 0)
    rows = []
    for aim in chosen:
        verdict, found = judge(aim, results)
        counts[verdict] += 1
        figure = "–"
        if found is not None:
            unit = "" if aim.how == "ratio" else _UNITS.get(results[aim.result].unit, "")
            figure = (ratio(found) if aim.how == "ratio" else span(found)) + unit
        loud = verdict if verdict == "reached" else f"**{verdict}**"
        shortfall = _shortfall(aim, found.median) if verdict == "missed" and found is not None else ""
        blame = aim.blame or "not told yet" if verdict == "missed" else ""
        rows.append((aim.what, figure, loud, shortfall, blame, f"`{aim.result}`"))
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    head = ("aim", "found", "", "short by", "what the profile blames", "result")
    return f"{told}, of {len(chosen)}.\n\n{table(head, rows)}"


def _shortfall(aim: Aim, figure: float) -> str:
    """Return by how many percent of what was promised a figure falls short."""
    bound = aim.least if aim.least is not None and figure < aim.least else aim.most
    return f"{abs(figure - bound) / abs(bound):.0%}" if bound else ""


def failures(entries: Iterable[Entry]) -> str:
    """Return what does not count, and why; empty when everything does."""
    rows = [
        (f"`{entry.result.name}`", "**FAILED**", _why(entry.result))
        for entry in entries
        if not entry.result.counts
    ]
    return table(("result", "", "why"), rows) if rows else ""


def _why(result: Result) -> str:
    if result.failure is not None:
        return result.failure
    return f"what was written differs: {_value(result.settings.get('differences', 'nobody said how'))}"


def stale_peers(entries: Iterable[Entry]) -> str:
    """Return the peers that were measured in a version that is not the newest; empty when none was."""
    told = dict.fromkeys(
        str(entry.result.settings["stale"]) for entry in entries if entry.result.settings.get("stale")
    )
    return "\n\n".join(f"**stale**: {line}." for line in told)


def ratios(entries: Iterable[Entry]) -> str:
    """Return ours against every other side of each result that counts; empty when there is none."""
    rows = [
        (f"`{result.name}`", other, ratio(result.ratio(OURS, other)), _content(result))
        for result in (entry.result for entry in entries)
        if result.counts and OURS in result.sides
        for other in result.sides
        if other != OURS and _paired(result, other)
    ]
    return table(("result", "against", "ratio", "content"), rows) if rows else ""


def _paired(result: Result, other: str) -> bool:
    return len(result.sides[OURS].samples) == len(result.sides[other].samples) > 0


def _content(result: Result) -> str:
    return {True: "equal", False: "**differs**", None: "nothing to compare"}[result.equal]


def absolutes(entries: Iterable[Entry]) -> str:
    """Return each side's figures; a result that does not count says so and shows none."""
    rows: list[tuple[str, ...]] = []
    for entry in entries:
        result = entry.result
        if not result.counts:
            rows.append((f"`{result.name}`", "", "**FAILED**", "", "", ""))
            continue
        for name, side in result.sides.items():
            rows.append((f"`{result.name}`", name, *_figures(result, side)))
    head = ("result", "side", "median (low–high)", "runs", "CPU-s per million", "peak MiB")
    return table(head, rows)


def _figures(result: Result, side: Side) -> tuple[str, str, str, str]:
    figure = f"{span(side.spread)} {result.unit}" if side.samples else "–"
    return figure, str(len(side.samples)), each(side.processor_s), each(side.peak_mib)


def missing(names: Iterable[str]) -> str:
    """Return what was promised and was not measured; empty when nothing is missing."""
    rows = [(f"`{name}`", "not measured") for name in names]
    return table(("result", ""), rows) if rows else ""


def settings(entries: Iterable[Entry]) -> str:
    """Return what was done for each result, and what a reader needs to do it again."""
    rows = []
    for entry in entries:
        told = ", ".join(f"{name} {_value(value)}" for name, value in entry.result.settings.items())
        rows.append((f"`{entry.result.name}`", entry.result.what, told))
    return table(("result", "what was done", "with"), rows)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{name} {_value(inner)}" for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_value, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def versions(entries: Iterable[Entry]) -> str:
    """Return every version that took part."""
    found: dict[str, set[str]] = {}
    for entry in entries:
        for name, version in entry.result.versions.items():
            found.setdefault(name, set()).add(version)
    return ", ".join(f"{name} {' and '.join(sorted(numbers))}" for name, numbers in sorted(found.items()))


def runs(entries: Sequence[Entry]) -> str:
    """Return the commands that measured, on which code, and how busy the machine was."""
    by_run: dict[str, list[Entry]] = {}
    for entry in entries:
        by_run.setdefault(entry.run.began, []).append(entry)
    rows = [
        (
            began.replace("T", " ").replace("+00:00", ""),
            _code(found[0].run),
            str(len(found)),
            ", ".join(sorted({entry.group for entry in found})),
            amount(sum(entry.seconds for entry in found) / 60),
            f"{min(min(e.load) for e in found):.1f}–{max(max(e.load) for e in found):.1f}",
        )
        for began, found in sorted(by_run.items())
    ]
    return table(("began (UTC)", "commit", "results", "groups", "minutes", "load average"), rows)


def _code(run: Run) -> str:
    sha = run.commit.sha[:10] or "unknown"
    return f"`{sha}`" + (" with changes" if run.commit.changed else "")
