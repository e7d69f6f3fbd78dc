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
from headrace.control.runs.words import Left, Words, in_words

__all__ = ["shown"]


@contextmanager
def shown(
    *, as_json: bool, console: Console = err, left: Left = lambda _: None
) -> Iterator[Callable[[ResnapshotEntry], None]]:
    """Yield what is to be called with the run as it is now, as often as one likes.

    Args:
        as_json: Whether a program waits, which is told nothing.
        console: Where it is told.
        left: What tells how many records sinks have still to apply.
    """
    if as_json or not console.is_terminal:
        yield in_words(say_to(as_json=as_json), left=left)
        return
    with Progress(
        BarColumn(), TextColumn("{task.description}", markup=False), console=console, transient=True
    ) as bar:
        bar.add_task("", total=None)
        (task,), words = bar.tasks, Words(left=left)

        def look(run: ResnapshotEntry) -> None:
            read = sum(run.counts.get("read", {}).values())
            estimate = run.plan.get("estimate", 0) if run.phase == Phase.READING.value else 0
            # Of how much is not known the bar only says that something is done; `update` would keep a total.
            task.total = estimate if estimate > read else None
            bar.update(task.id, description=words.of(run), completed=read)

        yield look
