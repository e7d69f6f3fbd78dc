"""Puts the page together: aims, ratios and figures by group, then how it was measured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.aims import AIMS, Aim
from tests.bench.journal import Entry, newest
from tests.bench.page import tables
from tests.bench.page.groups import TITLES, note
from tests.bench.page.plots import Plot, plots
from tests.bench.suite import Benchmark

__all__ = ["page", "write"]

_TEMPLATE = Path(__file__).with_name("template.md")


def write(entries: Iterable[Entry], benchmarks: Sequence[Benchmark], target: Path) -> None:
    """Write the page and its plots, which lie beside it in ``images/bench``."""
    shown = _in_order(_of_one_host(newest(entries)), benchmarks)
    drawn = plots(shown)
    images = target.parent / "images" / "bench"
    images.mkdir(parents=True, exist_ok=True)
    for old in set(images.glob("*.svg")) - {images / plot.file for plot in drawn}:
        old.unlink()
    for plot in drawn:
        plot.draw(images / plot.file)
    target.write_text(page(shown, benchmarks, drawn=drawn), encoding="utf-8")


def page(
    entries: Iterable[Entry],
    benchmarks: Sequence[Benchmark],
    *,
    aims: Sequence[Aim] = AIMS,
    drawn: Sequence[Plot] | None = None,
) -> str:
    """Return the page for the newest entry of each result, of the host that measured last.

    Figures of two machines are never shown on one page.
    """
    shown = _in_order(_of_one_host(newest(entries)), benchmarks)
    groups = _groups(shown)
    drawn = plots(shown) if drawn is None else drawn
    text = _TEMPLATE.read_text(encoding="utf-8")
    told = {entry.result.name for entry in shown}
    promised = dict.fromkeys(name for benchmark in benchmarks for name in benchmark.results)
    absent = [name for name in [*promised, *(aim.result for aim in aims)] if name not in told]
    parts = {
        "aims": tables.aims(shown, aims),
        "failures": _section("Failed", tables.failures(shown)),
        "stale": _paragraph(tables.stale_peers(shown)),
        "groups": "".join(_group(name, found, drawn) for name, found in groups.items()),
        "missing": _section("Not measured", tables.missing(dict.fromkeys(absent))),
        "host": _host(shown[-1].run.host) if shown else "Nothing was measured.",
        "runs": tables.runs(shown),
        "versions": tables.versions(shown) or "none",
        "settings": tables.settings(shown),
    }
    filled = text.format(**parts)
    return re.sub(r"\n{3,}", "\n\n", filled)


def _of_one_host(entries: Sequence[Entry]) -> list[Entry]:
    if not entries:
        return []
    last = max(entries, key=lambda entry: entry.ended).run.host
    return [entry for entry in entries if entry.run.host == last]


def _in_order(entries: Sequence[Entry], benchmarks: Sequence[Benchmark]) -> list[Entry]:
    names = [name for benchmark in benchmarks for name in benchmark.results]
    places = {name: place for place, name in enumerate(names)}
    return sorted(entries, key=lambda entry: places.get(entry.result.name, len(places)))


def _groups(entries: Sequence[Entry]) -> Mapping[str, list[Entry]]:
    found: dict[str, list[Entry]] = {name: [] for name in TITLES}
    for entry in entries:
        found.setdefault(entry.group, []).append(entry)
    return {name: those for name, those in found.items() if those}


def _group(name: str, entries: Sequence[Entry], drawn: Sequence[Plot]) -> str:
    images = "\n\n".join(
        f"{plot.title[0].upper()}{plot.title[1:]}\n\n![{plot.title}](images/bench/{plot.file})"
        for plot in drawn
        if plot.group == name
    )
    parts = [f"## {TITLES.get(name, name.capitalize())}", note(name), images, tables.ratios(entries)]
    figures = f"<details><summary>Figures</summary>\n\n{tables.absolutes(entries)}\n\n</details>"
    return "\n\n".join([*(part for part in parts if part), figures]) + "\n\n"


def _section(title: str, content: str) -> str:
    return f"\n## {title}\n\n{content}\n" if content else ""


def _paragraph(content: str) -> str:
    return f"\n{content}\n" if content else ""


def _host(host: Mapping[str, Any]) -> str:
    memory = round(host["memory_mib"] / 1024)
    return (
        f"{host['cores']} cores of {host['processor'] or 'an unnamed processor'}, {memory} GiB of memory, "
        f"{host['system']}, Python {host['python']}; servers, engine and client all on this machine."
    )
