"""Shows the demo while it runs: one live page on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import psycopg
from rich.console import Console
from rich.live import Live

from headrace.control.lag import LagReport
from headrace.demo.ledger import Tally
from headrace.demo.lookout import Lookout
from headrace.demo.original import Original
from headrace.demo.probe import FirstRows, Markers
from headrace.demo.stores.base import Store
from headrace.demo.watch import Look, line, page
from headrace.demo.workload import Workload

__all__ = ["Show"]

_REFRESH_S = 0.5
_LOOK_S = 1.5
_COUNT_S = 5.0
_LINE_S = 5.0


class Show:
    """Looks at everything in a thread of its own, from :meth:`start` until :meth:`stop`.

    Args:
        console: Where to; live when it is a terminal.
        began: When the command began, by :func:`time.monotonic`.
        lookout: Looks at lag.
        dsn: The shop's database.
        stores: The readers of the sinks; only this thread counts with them.
        tables: In the order of the page.
    """

    def __init__(
        self,
        console: Console,
        *,
        began: float,
        lookout: Lookout,
        dsn: str,
        stores: Sequence[Store],
        tables: Sequence[str],
    ) -> None:
        self._console = console
        self._began = began
        self._lookout = lookout
        self._dsn = dsn
        self._stores = stores
        self._look = Look(0.0, "", tables, [store.name for store in stores])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="show", daemon=True)
        self._live = (
            Live(console=console, auto_refresh=False, transient=False) if console.is_terminal else None
        )
        self.phase = "starting"
        self.workload: Workload | None = None
        self.markers: Markers | None = None
        self.first_rows: FirstRows | None = None
        self.report: LagReport | None = None
        """What the last look saw of lag."""

    def start(self) -> None:
        """Begin to look and to show."""
        if self._live is not None:
            self._live.start()
        self._thread.start()

    def stop(self) -> None:
        """Show a last time what was seen, and leave it standing; may be called again."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._live is not None:
            self._live.stop()

    def _run(self) -> None:
        counted = shown = 0.0
        while not self._stop.wait(_REFRESH_S):
            now = time.monotonic()
            look = self._lookout.look(within=_LOOK_S)
            if look is not None:
                self.report = look.report
            if now - counted >= _COUNT_S:
                counted = now
                self._count()
            self._refresh()
            if self._live is None and now - shown >= _LINE_S:
                shown = now
                self._console.print(line(self._look), markup=False, highlight=False, soft_wrap=True)
        self._refresh()

    def _count(self) -> None:
        rows = dict(self._look.rows)
        for store in self._stores:
            # A store that does not answer keeps its last figures; the report says what is wrong with it.
            with suppress(Exception):
                counts = store.counts(self._look.tables)
                rows |= {(store.name, table): count for table, count in counts.items()}
        original = dict(self._look.original)
        with suppress(psycopg.Error), Original.open(self._dsn) as source:
            original = {schema.table.name: source.count(schema) for schema in source.tables()}
        self._look = Look(0.0, "", self._look.tables, self._look.sinks, rows=rows, original=original)

    def _refresh(self) -> None:
        self._look = Look(
            seconds=time.monotonic() - self._began,
            phase=self.phase,
            tables=self._look.tables,
            sinks=self._look.sinks,
            report=self.report,
            original=self._look.original,
            rows=self._look.rows,
            tally=self.workload.tally() if self.workload else Tally(),
            latency_ms=self.markers.current() if self.markers else {},
            first_rows=dict(self.first_rows.seconds) if self.first_rows else {},
        )
        if self._live is not None:
            self._live.update(page(self._look, self._console.width), refresh=True)
