"""``headrace demo``: the whole chain on real servers, shown and judged."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.context import HomeOption, home_of, open_context
from headrace.cli.given import refuse_unused
from headrace.cli.output import JsonFlag, err, fails_clearly, out, print_json
from headrace.control.context import Context
from headrace.local.endpoints import OF_THIS_ONE, Endpoints
from headrace.local.stack import Stack
from headrace.model.errors import UsageError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""

    @app.command("demo")
    @fails_clearly
    def demo(
        ctx: typer.Context,
        seconds: Annotated[float, typer.Option(min=1, help="How long people write in the shop.")] = 20.0,
        rate: Annotated[float, typer.Option(min=1, help="Row changes per second.")] = 200.0,
        seed: Annotated[int, typer.Option(help="Other numbers, other shops.")] = 1,
        scale: Annotated[float, typer.Option(min=0.001, help="Size of the shop; 1 is 62,060 rows.")] = 1.0,
        keep: Annotated[bool, typer.Option("--keep", help="Leave servers and pipeline running.")] = False,
        compare_only: Annotated[
            bool, typer.Option("--check", help="Compare the rows of a kept demo again, and nothing else.")
        ] = False,
        report: Annotated[
            Path | None, typer.Option(help="Write everything that was measured to this JSON file.")
        ] = None,
        home: HomeOption = None,
        as_json: JsonFlag = False,
    ) -> None:
        """Show it all: local servers, a sample shop, three sinks, live writes, then every row compared.

        The last line of standard output is one JSON object. Exit code 1 when anything differs.

        Examples: `headrace demo` · `headrace demo --seconds 60 --keep`
        """
        if compare_only and report is not None:
            raise UsageError(
                "--check and --report do not go together.",
                code="DEMO_CHECK_OR_REPORT",
                hint="headrace demo --check",
            )
        if compare_only:
            writes = "seconds", "rate", "seed", "scale", "keep"
            refuse_unused(ctx, *writes, where="beside --check", hint="headrace demo --check")
        if report is not None:
            _try(report)
        # Only this command needs the stores' clients; the others start faster without.
        from headrace.demo.check import check
        from headrace.demo.interrupt import Interruption
        from headrace.demo.keep import next_steps
        from headrace.demo.run import Demo, Options

        place = home_of(home)
        _forget_other_servers()

        def context_of(endpoints: Endpoints) -> Context:
            return replace(
                open_context(place.root, begins=True),
                connect_url=endpoints.connect_url,
                kafka_bootstrap=endpoints.kafka_bootstrap,
            )

        console = err if as_json else out
        if compare_only:
            comparisons = check(Stack(place), context_of, console)
            equal = all(comparison.equal for comparison in comparisons)
            rows = {comparison.table: comparison.expected for comparison in comparisons}
            differing = [comparison.as_dict() for comparison in comparisons if not comparison.equal]
            print_json({"in_sync": equal, "rows": rows, "differences": differing})
            raise typer.Exit(0 if equal else 1)
        options = Options(seconds, rate, seed, scale, keep)
        show = Demo(Stack(place), context_of, options, console, Interruption())
        try:
            verdict = show.run()
        except KeyboardInterrupt:
            err.print("interrupted; what the demo started is stopped and what it made is removed")
            raise typer.Exit(130) from None
        if keep and show.booted is not None:
            for text in next_steps(show.booted.context, show.booted.endpoints, home):
                console.print(text, markup=False, highlight=False, soft_wrap=True)
        print_json(verdict.line())
        if report is not None:
            with _told_of(report):
                report.write_text(json.dumps(verdict.details(), indent=2) + "\n")
        if not verdict.in_sync:
            raise typer.Exit(1)


def _forget_other_servers() -> None:
    """Have libpq connect to the local Postgres, whatever the environment says of servers elsewhere."""
    for option in OF_THIS_ONE:
        os.environ.pop(f"PG{option.replace('_', '').upper()}", None)


def _try(report: Path) -> None:
    """Fail now when the report could not be written at the end; a file that is there stays as it is."""
    with _told_of(report):
        new = not report.exists()
        report.open("a").close()
        if new:
            report.unlink()


@contextmanager
def _told_of(report: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"The report {report} cannot be written: {error.strerror or error}.",
            code="DEMO_REPORT_UNWRITABLE",
            hint=shlex.join(["ls", "-ld", str(report.absolute().parent)]),
        ) from error
