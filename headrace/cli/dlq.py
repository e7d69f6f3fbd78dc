"""``headrace dlq``: records that a sink could not take, looked at, applied again or given up."""

from __future__ import annotations

import base64
import json
from collections import Counter
from datetime import datetime, timezone
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import Progress

from headrace.cli.context import HomeOption, open_context, table_id
from headrace.cli.output import JsonFlag, err, fails_clearly, out, print_hint, print_json
from headrace.cli.show import grid, number
from headrace.control import deadletters
from headrace.control.context import Context
from headrace.control.deadletters import Chosen, LetterState
from headrace.control.names import known_sink, known_table
from headrace.control.registry import DeadLetterEntry, Registry
from headrace.model.errors import UsageError
from headrace.model.letter import Letter

__all__ = ["register"]

_ALL = "all"
_STATES = (*(state.value for state in LetterState), _ALL)

Numbers = Annotated[
    list[int] | None, typer.Argument(help="Numbers from the list; without any, the options choose.")
]
SinkOption = Annotated[str | None, typer.Option("--sink", help="Only of this sink.")]
TableOption = Annotated[str | None, typer.Option("--table", help="Only of this table, schema.name.")]
CodeOption = Annotated[str | None, typer.Option("--code", help="Only those rejected for this reason.")]
StateOption = Annotated[str, typer.Option("--state", help=f"One of {', '.join(_STATES)}.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; do nothing.")]
AllOfThem = Annotated[bool, typer.Option("--all", help="Really all, when nothing else narrows the choice.")]

dlq = typer.Typer(no_args_is_help=True, help="Records a sink could not take: list, show, replay, discard.")


@dlq.command("list")
@fails_clearly
def list_(
    sink: SinkOption = None,
    table: TableOption = None,
    code: CodeOption = None,
    state: StateOption = LetterState.WAITING.value,
    limit: Annotated[int, typer.Option(min=1, help="At most so many letters.")] = 50,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """List rejected records: first by cause, then one by one, oldest first.

    Example: `headrace dlq list --sink search --code ES_DOCUMENT_REJECTED`
    """
    context = open_context(home)
    found = deadletters.letters(context, _chosen(context, None, sink, table, code, state))
    causes = Counter((entry.sink, entry.table, entry.code, entry.state) for entry in found)
    if as_json:
        print_json(
            {
                "causes": [
                    {"sink": s, "table": t, "code": c, "state": w, "letters": count}
                    for (s, t, c, w), count in causes.items()
                ],
                "letters": [_as_dict(entry) for entry in found[:limit]],
                "total": len(found),
            }
        )
        return
    if not found:
        out.print("No letters." if state == _ALL else f"No letters are {state}.")
        return
    rows = [(s, t, c, w, number(count)) for (s, t, c, w), count in causes.items()]
    out.print(grid(("sink", "table", "code", "state", "letters>"), rows), "")
    out.print(
        grid(
            ("no>", "at", "sink", "table", "row", "record", "code"),
            [
                (
                    entry.number,
                    _moment(entry.at_ms),
                    entry.sink,
                    entry.table,
                    entry.row or "?",
                    f"{entry.topic}/{entry.partition}/{entry.offset}",
                    entry.code,
                )
                for entry in found[:limit]
            ],
        )
    )
    if len(found) > limit:
        out.print(f"… and {len(found) - limit:,} more; --limit shows them.")
    for way in dict.fromkeys(filter(None, map(deadletters.way_out, found))):
        print_hint(f"→ {way}")


@dlq.command("show")
@fails_clearly
def show(
    letter: Annotated[int, typer.Argument(help="Its number in the list.")],
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show one rejected record whole: why, raw key and value, headers, and the table's schema then.

    Example: `headrace dlq show 3`
    """
    entry, record = deadletters.letter(open_context(home), letter)
    if as_json:
        print_json({**_as_dict(entry), **_record(record)})
        return
    facts = [
        ("sink", entry.sink),
        ("table", entry.table),
        ("row", entry.row or "not told"),
        ("record", f"topic {entry.topic}, partition {entry.partition}, offset {entry.offset}"),
        ("set aside", _moment(entry.at_ms)),
        ("state", entry.state),
        ("code", entry.code),
        ("reason", entry.reason),
    ]
    out.print(grid(("letter", str(entry.number)), facts))
    if way := deadletters.way_out(entry):
        print_hint(f"way out: {way}")
    for name, raw in (("key", record.key), ("value", record.value), *record.headers):
        out.print(f"\n[bold]{escape(name)}[/]", highlight=False)
        out.print(_readable(raw), markup=False, highlight=False, soft_wrap=True)


@dlq.command("replay")
@fails_clearly
def replay(
    letters: Numbers = None,
    sink: SinkOption = None,
    table: TableOption = None,
    code: CodeOption = None,
    discarded: Annotated[
        bool, typer.Option("--discarded", help="Take letters that were discarded: the way back.")
    ] = False,
    everything: AllOfThem = False,
    dry_run: DryRun = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Apply rejected records again, after what was wrong is mended; newer data is never overwritten.

    All letters of a row go together, in their order. What is refused again waits on.

    Example: `headrace dlq replay --sink search --table public.orders`
    """
    context = open_context(home)
    state = LetterState.DISCARDED if discarded else LetterState.WAITING
    chosen = _narrowed(context, letters, sink, table, code, state.value, everything=everything)
    found = deadletters.letters(context, chosen)
    if dry_run:
        _say_dry(found, "apply again", as_json=as_json)
        return
    with Progress(console=err, transient=True, disable=as_json) as progress:
        bar = progress.add_task("applying", total=len(found))
        done = deadletters.replay(
            context, chosen, told=lambda count, of: progress.update(bar, completed=count, total=of)
        )
    if as_json:
        print_json({"letters": done.letters, "done": done.done, "refused": done.refused})
    else:
        out.print(f"{done.done:,} of {done.letters:,} letters are done.")
        for why, count in done.refused.items():
            print_hint(f"{count:,} refused again: {why}")
    if done.refused:
        raise typer.Exit(1)


@dlq.command("discard")
@fails_clearly
def discard(
    letters: Numbers = None,
    sink: SinkOption = None,
    table: TableOption = None,
    code: CodeOption = None,
    everything: AllOfThem = False,
    dry_run: DryRun = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Give rejected records up. Their rows stay behind, and `lag` says so, until a newer change comes.

    Nothing is erased: `headrace dlq replay --discarded` takes them up again.

    Example: `headrace dlq discard 3 4`
    """
    context = open_context(home)
    chosen = _narrowed(context, letters, sink, table, code, LetterState.WAITING.value, everything=everything)
    if dry_run:
        _say_dry(deadletters.letters(context, chosen), "discard", as_json=as_json)
        return
    count = deadletters.discard(context, chosen)
    if as_json:
        print_json({"discarded": count})
    else:
        out.print(f"{count:,} letters discarded.")


def register(app: typer.Typer) -> None:
    """Add the group to ``app``."""
    app.add_typer(dlq, name="dlq")


def _chosen(
    context: Context,
    numbers: list[int] | None,
    sink: str | None,
    table: str | None,
    code: str | None,
    state: str,
) -> Chosen:
    if state not in _STATES:
        raise UsageError(
            f"“{state}” is no state of a letter.", code="LETTER_STATE", hint=f"One of {', '.join(_STATES)}."
        )
    registry = Registry(context.registry)
    of_sink = known_sink(context, registry, sink) if sink else None
    of_table = known_table(registry, table_id(table)) if table else None
    chosen = None if state == _ALL else LetterState(state)
    return Chosen(tuple(numbers or ()), of_sink, of_table, code, chosen)


def _narrowed(
    context: Context,
    numbers: list[int] | None,
    sink: str | None,
    table: str | None,
    code: str | None,
    state: str,
    *,
    everything: bool,
) -> Chosen:
    if not (numbers or sink or table or code or everything):
        raise UsageError(
            "Say which letters.",
            code="LETTERS_UNNAMED",
            hint="Give numbers, --sink, --table or --code; or --all.",
        )
    deadletters.refuse_unknown(context, numbers or ())
    return _chosen(context, numbers, sink, table, code, state)


def _say_dry(found: list[DeadLetterEntry], what: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"dry_run": True, "letters": [_as_dict(entry) for entry in found]})
        return
    # Of a letter without a key nobody knows which row it is of: it counts as one.
    rows = {(entry.sink, entry.table, entry.row or entry.number) for entry in found}
    out.print(f"Would {what} {len(found):,} letters of {len(rows):,} rows.")


def _as_dict(entry: DeadLetterEntry) -> dict[str, Any]:
    return {
        "number": entry.number,
        "sink": entry.sink,
        "table": entry.table,
        "row": entry.row,
        "topic": entry.topic,
        "epoch": entry.epoch,
        "partition": entry.partition,
        "offset": entry.offset,
        "code": entry.code,
        "reason": entry.reason,
        "remedy": deadletters.way_out(entry),
        "at_ms": entry.at_ms,
        "state": entry.state,
        "file": entry.file,
    }


def _record(record: Letter) -> dict[str, Any]:
    return {
        "schema": json.loads(record.schema),
        "key": _encoded(record.key),
        "value": _encoded(record.value),
        "headers": [{"name": name, "value": _encoded(value)} for name, value in record.headers],
    }


def _encoded(raw: bytes | None) -> dict[str, str] | None:
    """Return raw bytes exactly, and as text where they are text."""
    if raw is None:
        return None
    exact = {"base64": base64.b64encode(raw).decode()}
    try:
        return {**exact, "text": raw.decode()}
    except UnicodeDecodeError:
        return exact


def _readable(raw: bytes | None) -> str:
    if raw is None:
        return "null"
    try:
        text = json.dumps(json.loads(raw), indent=2, ensure_ascii=False)
        text.encode()  # half of a surrogate pair is no letter that can be printed
    except (ValueError, RecursionError):
        return repr(raw)
    return text


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
