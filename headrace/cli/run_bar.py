"""A run while somebody waits for it: a bar in a terminal, a line whenever something changes elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from headrace.cli.output import err
from headrace.cli.show import say_to
from headrace.control.registry import ResnapshotEntry
from headrace.control.runs.repository import Phase
from headrace.control.runs.words import Words, in_words

__all__ = ["shown"]


@contextmanager
def shown(*, as_json: bool, console: Console = err) -> Iterator[Callable[[ResnapshotEntry], None]]:
    """Yield what is to be called with the run as it is now, as often as one likes."""
    if as_json or not console.is_terminal:
        yield in_words(say_to(as_json=as_json))
        return
    with Progress(
        BarColumn(), TextColumn("{task.description}", markup=False), console=console, transient=True
    ) as bar:
        task, words = bar.add_task("", total=None), Words()

        def look(run: ResnapshotEntry) -> None:
            read = sum(run.counts.get("read", {}).values())
            whole = run.phase not in (Phase.QUEUED.value, Phase.READING.value)
            estimate = run.plan.get("estimate", 0)
            total = read if whole else estimate if estimate > read else 0
            # Of how much is not known the bar only says that something is done.
            bar.update(task, description=words.of(run), completed=read, total=total or None)

        yield look
