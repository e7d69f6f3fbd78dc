"""What a storm rages over: a shop with a witness on a stack, and the means to hurt it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from headrace.cli.context import open_context
from headrace.control.context import Context
from headrace.control.registry import Registry
from headrace.demo import shop
from headrace.demo.compare import Comparison
from headrace.demo.original import Original
from headrace.demo.pipeline import open_stores, register
from headrace.demo.stock import TABLES, Sizes
from headrace.demo.stores.base import Store
from headrace.demo.verdict import compare_all
from headrace.model.schema import TableSchema
from tests.storm.observer import CHANGING, Observer
from tests.storm.witness import CREATE, Witness
from tests.support.database import statements
from tests.support.stack import RunningStack

__all__ = ["Field", "open_field"]
_CREATE_CHANGING = f"""
CREATE TYPE changing_kind AS ENUM ('a', 'b', 'c');
CREATE TABLE {CHANGING} (id integer PRIMARY KEY, kind changing_kind NOT NULL, amount numeric(12, 2) NOT NULL,
                         v text, size integer);
INSERT INTO {CHANGING} SELECT i, 'a', i, md5(i::text), i FROM generate_series(1, 200) i;
"""
Log = Callable[[str], None]


@dataclass(slots=True)
class Field:
    """A source and three sinks on a stack.

    Attributes:
        running: The stack.
        context: For the control plane.
        name: Of the source.
        dsn: The source's database.
        sinks: Name → kind.
        sizes: Of the shop.
        witness: Writes what is known.
        observer: Looks.
        log: Told of everything that happens.
        commands: Commands under way.
        broken: Commands that ended in a traceback: what went wrong is to be said in words.
        refused: Commands that ended otherwise than well, each with its last words.
        useless: Remedies that failed while every server answered, and that status went on to tell there.
    """

    running: RunningStack
    context: Context
    name: str
    dsn: str
    sinks: dict[str, str]
    sizes: Sizes
    witness: Witness
    observer: Observer
    log: Log
    commands: list[subprocess.Popen[str]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    useless: list[str] = field(default_factory=list)

    def sink(self, kind: str) -> str:
        """Return the name of the sink of a kind."""
        return next(name for name, known in self.sinks.items() if known == kind)

    @property
    def is_up(self) -> bool:
        """Return whether every server, and the engine, runs and answers."""
        return all(server.state == "running" for server in self.running.stack.status())

    def facts(self, sink: str, table: str) -> dict[str, Any]:
        """Return where a sink keeps a table of the schema public."""
        found = Registry(self.context.registry).sink(sink).tables[f"{self.name}.public.{table}"]
        return dict(found)

    def execute(self, statement: str) -> int:
        """Run SQL on the source, as the application would; return how many rows its last statement met."""
        with psycopg.connect(self.dsn, autocommit=True, connect_timeout=5) as connection:
            return connection.execute(statement.encode()).rowcount

    def paste(self, text: str) -> None:
        """Give the statements of a text one by one, as at psql's prompt."""
        with psycopg.connect(self.dsn, autocommit=True, connect_timeout=5) as connection:
            for statement in statements(text):
                connection.execute(statement.encode())

    def strikes(self, statement: str) -> None:
        """Run SQL that has to meet a row.

        Raises:
            LookupError: When it meets none, so that the fault is not counted.
        """
        if self.execute(statement) < 1:
            raise LookupError("no row was there")

    def headrace(self, *arguments: str, wait: float | None = 240.0) -> int | None:
        """Run the command line; return its exit code, None when it goes on."""
        command = [sys.executable, "-c", "from headrace.cli.main import run; run()", *arguments]
        process = subprocess.Popen(
            [*command, "--home", str(self.running.home.root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if wait is None:
            self.commands.append(process)
            return None
        try:
            told, _ = process.communicate(timeout=wait)
        except subprocess.TimeoutExpired:
            process.kill()
            told, _ = process.communicate()
            self.log(f"`headrace {' '.join(arguments)}` took longer than {wait:.0f} s")
            return -1
        self._heard(process, told)
        return process.returncode

    def _heard(self, process: subprocess.Popen[str], told: str) -> None:
        """Log what a command said that failed."""
        if not process.returncode:
            return
        words = " ".join(map(str, list(process.args)[3:-2])) if isinstance(process.args, list) else ""
        self.log(f"`headrace {words}` ended with {process.returncode}: {told.strip()[-600:]}")
        self.refused.append(f"headrace {words}: {told.strip()[-200:]}")
        if "Traceback (most recent call last)" in told or "INTERNAL" in told:
            self.broken.append(f"headrace {words}: {told.strip()[-200:]}")

    def does(self, *arguments: str) -> None:
        """Run the command line.

        Raises:
            RuntimeError: When the command fails, so that a fault that needs it is not counted.
        """
        if self.headrace(*arguments):
            raise RuntimeError(f"headrace {' '.join(arguments)} failed")

    def ended(self) -> None:
        """Wait for the commands under way."""
        for process in self.commands:
            try:
                told, _ = process.communicate(timeout=240)
                self._heard(process, told)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        self.commands.clear()

    @contextmanager
    def stores(self) -> Iterator[Sequence[Store]]:
        """Yield a reader for each sink."""
        with ExitStack() as closing:
            found = open_stores(self.context, self.running.endpoints, source=self.name, sinks=self.sinks)
            for store in found:
                closing.callback(store.close)
            yield found

    def compare(self) -> list[Comparison]:
        """Compare every row of every table in every store."""
        with self.stores() as stores:
            return compare_all(self.dsn, stores, TABLES)


@contextmanager
def open_field(running: RunningStack, seed: int, log: Log) -> Iterator[Field]:
    """Yield a field that is registered and whose sinks are being filled; nothing of it is removed."""
    name = f"storm{seed}"
    sizes = Sizes().scaled(0.03)
    context = open_context(running.home.root)
    sinks = {f"{name}_search": "elasticsearch", f"{name}_cache": "redis", f"{name}_lake": "delta"}
    dsn = shop.create(running.endpoints.postgres_dsn, name)
    shop.seed(dsn, seed=seed, sizes=sizes)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(CREATE.encode())
        connection.execute(_CREATE_CHANGING.encode())
    register(context, dsn, running.endpoints, lambda _: None, source=name, sinks=sinks)
    witness = Witness(dsn, seed)
    with Original.open(dsn) as original:
        tables: list[TableSchema] = original.tables()

    def stores() -> Sequence[Store]:
        return open_stores(context, running.endpoints, source=name, sinks=sinks)

    observer = Observer(context, dsn, tables, stores, witness.ledger)
    field_ = Field(running, context, name, dsn, sinks, sizes, witness, observer, log)
    try:
        yield field_
    finally:
        field_.ended()
