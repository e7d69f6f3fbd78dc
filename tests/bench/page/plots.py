"""The plots of the page: ratios by group, and the sides of results that have many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.aims import AIMS
from tests.bench.journal import Entry
from tests.bench.page.ink import ACCENT, INK, MUTED, WARN, sheet
from tests.bench.page.tables import OURS
from tests.bench.page.words import amount
from tests.bench.results import Result, Spread

__all__ = ["Plot", "plots"]

_MANY = 3
"""With so many sides a result is worth a plot of its own."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A file to be.

    Args:
        file: Its name.
        title: What it shows, for those who cannot see it.
        group: Where it stands.
        draw: Writes it.
    """

    file: str
    title: str
    group: str
    draw: Callable[[Path], None]


def plots(entries: Sequence[Entry]) -> list[Plot]:
    """Return the plots for what counts."""
    groups: dict[str, list[Result]] = {}
    for entry in entries:
        if entry.result.counts:
            groups.setdefault(entry.group, []).append(entry.result)
    found: list[Plot] = []
    for group, results in groups.items():
        lines = [line for result in results for line in _ratios(result)]
        if lines:
            title = f"Ratios of {group}, ours to others; above 1 ours is faster"
            found.append(Plot(f"{group}-ratios.svg", title, group, _dots(lines)))
        ranked = _ranked(results)
        if ranked:
            title = "Milliseconds from commit to visible: the median, and what one row in a hundred exceeds"
            found.append(Plot(f"{group}-ranks.svg", title, group, _ranks(ranked)))
        found += [
            Plot(f"{result.name}.svg", f"{result.what} ({result.unit})", group, _bars(result))
            for result in results
            if OURS not in result.sides and len(result.sides) >= _MANY
        ]
    return found


@dataclass(frozen=True, slots=True)
class _Line:
    label: str
    ratio: Spread
    aim: float | None


def _ratios(result: Result) -> list[_Line]:
    if OURS not in result.sides:
        return []
    own = len(result.sides[OURS].samples)
    label = result.name.partition(".")[2]  # the group is said above
    wanted: Mapping[tuple[str, str | None], float | None] = {
        (aim.result, aim.over): aim.least for aim in AIMS if aim.how == "ratio"
    }
    return [
        _Line(f"{label} / {other}", result.ratio(OURS, other), wanted.get((result.name, other)))
        for other, side in result.sides.items()
        if other != OURS and len(side.samples) == own > 0
    ]


def _dots(lines: Sequence[_Line]) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        with sheet(path, len(lines) + 1, "ratio, median and range of the runs; the tick is the aim") as axes:
            axes.axvline(1.0, color=INK, linewidth=0.8)
            for place, line in enumerate(lines):
                short = line.aim is not None and line.ratio.median < line.aim
                colour = WARN if short else ACCENT if line.aim is not None else MUTED
                axes.plot(
                    [line.ratio.low, line.ratio.high], [place, place], color=colour, linewidth=2.2, alpha=0.45
                )
                axes.plot(line.ratio.median, place, "o", color=colour, markersize=5)
                if line.aim is not None:
                    axes.plot(line.aim, place, "|", color=INK, markersize=11, markeredgewidth=1.4)
            axes.set_yticks(range(len(lines)), [line.label for line in lines])
            axes.set_xlim(left=0)

    return draw


def _bars(result: Result) -> Callable[[Path], None]:
    sides = {name: side.spread for name, side in result.sides.items() if side.samples}

    def draw(path: Path) -> None:
        with sheet(path, len(sides) + 1, result.unit) as axes:
            for place, spread in enumerate(sides.values()):
                axes.barh(place, spread.median, height=0.55, color=ACCENT, alpha=0.8, linewidth=0)
                axes.plot([spread.low, spread.high], [place, place], color=INK, linewidth=1.0)
                axes.text(spread.high, place, f"  {amount(spread.median)}", va="center", color=INK)
            axes.set_yticks(range(len(sides)), list(sides))
            axes.set_xlim(0, max(spread.high for spread in sides.values()) * 1.15)

    return draw


def _ranked(results: Sequence[Result]) -> Mapping[str, tuple[float, float]]:
    """Return what was measured as ``….p50`` and ``….p99``, by what stands before."""
    medians = {
        result.name: result.sides[OURS].spread.median
        for result in results
        if result.unit == "ms" and OURS in result.sides and result.sides[OURS].samples
    }
    names = [name.removesuffix(".p50") for name in medians if name.endswith(".p50")]
    return {
        name.partition(".")[2]: (medians[f"{name}.p50"], medians[f"{name}.p99"])
        for name in names
        if f"{name}.p99" in medians
    }


def _ranks(lines: Mapping[str, tuple[float, float]]) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        with sheet(
            path, len(lines) + 1, "ms from commit to visible: ● the median, | one in a hundred"
        ) as axes:
            for place, (median, rare) in enumerate(lines.values()):
                axes.plot([median, rare], [place, place], color=ACCENT, linewidth=2.2, alpha=0.45)
                axes.plot(median, place, "o", color=ACCENT, markersize=5)
                axes.plot(rare, place, "|", color=ACCENT, markersize=9, markeredgewidth=1.6)
                axes.text(rare, place, f"  {amount(median)} / {amount(rare)}", va="center", color=INK)
            axes.set_yticks(range(len(lines)), list(lines))
            axes.set_xlim(0, max(rare for _, rare in lines.values()) * 1.2)

    return draw
