"""How plots look: few lines, one colour that means something, and readable on white and on black."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

__all__ = ["ACCENT", "INK", "MUTED", "WARN", "sheet"]

INK = "#24292f"
MUTED = "#8c959f"
ACCENT = "#2f81f7"
WARN = "#d9480f"

_DARK = {INK: "#e6edf3"}
"""The other colours are seen on both backgrounds."""

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "headrace",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "x",
    "grid.color": MUTED,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0.0,
    "ytick.major.size": 0.0,
    "legend.frameon": False,
}


@contextmanager
def sheet(path: Path, rows: int, label: str) -> Iterator[Axes]:
    """Yield axes with room for some rows, and write them to ``path`` at the end.

    Args:
        path: An SVG file.
        rows: How many lines of text stand at the left.
        label: Of the horizontal axis.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.6, 0.7 + 0.27 * max(rows, 2)), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.set_xlabel(label)
        yield axes
        axes.invert_yaxis()
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    path.write_text(_for_both(path.read_text(encoding="utf-8")), encoding="utf-8")


def _for_both(svg: str) -> str:
    """Let a dark background have light ink; where that is not understood, the light colours stay."""
    rules = "".join(
        f'[style*="{kind}: {light}"]{{{kind}:{dark} !important}}'
        for light, dark in _DARK.items()
        for kind in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
    marked = re.sub(r"(<svg\b[^>]*>)", lambda match: match.group(1) + style, svg, count=1)
    return "\n".join(line.rstrip() for line in marked.splitlines()) + "\n"
