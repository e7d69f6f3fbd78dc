"""Figures as people read them, and tables as Markdown has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.bench.results import Spread

__all__ = ["amount", "each", "ratio", "span", "table"]


def amount(figure: float) -> str:
    """Return a figure with three digits that count."""
    if abs(figure) >= 1_000:
        digits = 10 ** max(0, len(str(int(abs(figure)))) - 3)
        return f"{round(figure / digits) * digits:,}"
    if abs(figure) >= 100:
        return f"{figure:.0f}"
    if abs(figure) >= 10:
        return f"{figure:.1f}"
    return f"{figure:.2f}"


def span(spread: Spread) -> str:
    """Return the median, and the smallest and largest behind it."""
    if spread.low == spread.high:
        return amount(spread.median)
    return f"{amount(spread.median)} ({amount(spread.low)}–{amount(spread.high)})"


def ratio(spread: Spread) -> str:
    """Return how much better something is; always with two decimals, so that a column can be compared."""
    return f"{spread.median:.2f} ({spread.low:.2f}–{spread.high:.2f})"


def each(figures: Mapping[str, float]) -> str:
    """Return figures by name, the largest first; a dash without any."""
    ranked = sorted(figures.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {amount(figure)}" for name, figure in ranked) or "–"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
