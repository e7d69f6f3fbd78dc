"""What is wrong with a captured table for as long as it is so: publication, identity, rights, heirs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from connectors.postgres.advice import briefly
from connectors.postgres.facts import Facts
from connectors.postgres.replica_identity import DEFAULT, FULL, GENERATED_REFUSED, Limits, alter, guarding
from connectors.postgres.session import quoted
from connectors.watch import Trouble
from headrace.model.schema import TableSchema

__all__ = ["identified", "refused", "taken_back", "wrong_now"]

_GONE = "the publication lacks the table: it was dropped, renamed or moved to another schema"
_BEARERS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}


def wrong_now(
    schema: TableSchema, now: Mapping[str, Any], facts: Facts, full: Collection[str]
) -> Iterator[Trouble]:
    """Yield what is wrong with a table at this look.

    Args:
        schema: What is captured of it.
        now: The catalogue's word on it.
        facts: The look.
        full: Captured columns that need whole rows in the log.
    """
    table = schema.table
    if now["oid"] is None:
        bearer = _BEARERS.get(now["bearer"], "something else") if now["bearer"] else ""
        said = f"{_GONE}; {bearer} has its name now" if bearer else _GONE
        yield Trouble(table, "TABLE_GONE", True, said, lasts=True)
        return
    if now["member"] is None:
        said, mend = "the publication lacks the table", ""
        if why := refused(now, facts.version):
            said, mend = f"{said}, and {why}", identified(schema, now, facts.version)
        yield Trouble(table, "TABLE_UNPUBLISHED", True, said, mend, lasts=True)
    elif not now["member"][2]:
        said = "the publication tells of some rows or columns of the table only"
        yield Trouble(table, "TABLE_PUBLISHED_IN_PART", True, said, lasts=True)
    elif facts.publication is not None and not facts.publication["right"]:
        said = "the publication does not tell of every kind of change"
        yield Trouble(table, "PUBLICATION_CHANGED", True, said, lasts=True)
    if now["filtered"]:
        said = f"row security hides rows of it from {facts.role}; a resnapshot would not see them"
        yield Trouble(table, "ROW_SECURITY", False, said, f"ALTER ROLE {facts.role} BYPASSRLS;", lasts=True)
    if now["above"]:
        said = f"it has become a partition of {now['above'][0]}: its changes arrive under that name only"
        yield Trouble(table, "TABLE_ATTACHED", True, said, lasts=True)
    for heir in now["heirs"] or ():
        said = f"{heir} inherits from it: changes of rows there are not mirrored"
        mend = briefly(f"ALTER TABLE {heir} NO INHERIT {table.quoted};")
        yield Trouble(table, "TABLE_INHERITED", True, said, mend, lasts=True)
    if _has_another_key(schema, now):
        listed = ", ".join(now["key"])
        said = f"the table's key is ({listed}) now: other rows are meant than those mirrored"
        yield Trouble(table, "KEY_CHANGED", True, said, lasts=True)
        return
    yield from _namesakes(schema, now)
    yield from _unlogged(schema, now)
    yield from _ambiguous(schema, now, facts.version)
    yield from _identity(schema, now, full, facts.version)


def _has_another_key(schema: TableSchema, now: Mapping[str, Any]) -> bool:
    return not schema.declared and bool(now["key"]) and set(now["key"]) != set(schema.key)


def _namesakes(schema: TableSchema, now: Mapping[str, Any]) -> Iterator[Trouble]:
    for name, (other, what) in (now["namesakes"] or {}).items():
        if name in schema.by_name:
            said = f"the type of column {name} has a namesake, {other}: the connector mixes them up"
            mend = briefly(f'ALTER {what} {other} RENAME TO "…";')
            yield Trouble(schema.table, "TYPE_NAMESAKE", True, said, mend, lasts=True)


def _unlogged(schema: TableSchema, now: Mapping[str, Any]) -> Iterator[Trouble]:
    for unit in (now["units"] or {}).values():
        if unit["foreign"]:
            said = f"{unit['name']} is a foreign table: nobody is told what changes there"
            yield Trouble(schema.table, "TABLE_UNLOGGED", True, said, briefly(unit["foreign"]), lasts=True)
        elif not unit["logged"]:
            said = f"{unit['name']} is unlogged: nobody is told what changes there"
            mend = briefly(f"ALTER TABLE {unit['name']} SET LOGGED;", does="rewrites the table")
            yield Trouble(schema.table, "TABLE_UNLOGGED", True, said, mend, lasts=True)


def _ambiguous(schema: TableSchema, now: Mapping[str, Any], version: int) -> Iterator[Trouble]:
    if not any(set(columns) <= set(schema.key) for columns in now["uniques"] or ()):
        listed = ", ".join(map(quoted, schema.key))
        said = f"nothing makes its key ({', '.join(schema.key)}) unique: two rows may be taken for one"
        what = "ADD UNIQUE" if schema.declared else "ADD PRIMARY KEY"
        mend = briefly(f"ALTER TABLE {schema.table.quoted} {what} ({listed});", does="builds an index")
        yield Trouble(schema.table, "KEY_NOT_UNIQUE", True, said, mend, lasts=True)
        return
    if loose := [name for name in schema.key if name in (now["nullable"] or ())]:
        said = f"NULL is allowed in {', '.join(loose)} of its key: rows with NULL there are taken for one"
        required = ", ".join(f"ALTER {quoted(name)} SET NOT NULL" for name in loose)
        mend = briefly(f"ALTER TABLE {schema.table.quoted} {required};", does="reads the table")
        yield Trouble(schema.table, "KEY_NOT_UNIQUE", True, said, mend, lasts=True)
        return
    for unit in _tables(now):
        if not unit["guarded"] and unit["identity"] != "d":  # of which Postgres refuses updates
            said = f"no index of its partition {unit['name']} tells its rows apart at each moment"
            mend = guarding(unit["name"], unit["number"], schema.key, _limits(now, version))
            yield Trouble(schema.table, "KEY_NOT_UNIQUE", True, said, mend, lasts=True)
            return


def _identity(
    schema: TableSchema, now: Mapping[str, Any], full: Collection[str], version: int
) -> Iterator[Trouble]:
    units, limits = _tables(now), _limits(now, version)
    for unit in units:
        if unit["identity"] == "f":
            continue
        if full:
            said = f"its replica identity is no longer FULL: large values of {', '.join(full)} arrive as NULL"
            mend = alter([one["name"] for one in units if one["identity"] != "f"], FULL, limits)
            yield Trouble(schema.table, "IDENTITY_WEAK", True, said, mend, lasts=True)
            return
        if unit["identity"] != "n" and unit["key"] and not set(schema.key) <= set(unit["key"]):
            listed = ", ".join(unit["key"])
            said = f"its replica identity ({listed}) lacks key columns: deletes do not name their rows"
            whole = alter([unit["name"]], FULL, limits)
            mend = whole if schema.declared else alter([unit["name"]], DEFAULT, limits, now["key"] or ())
            yield Trouble(schema.table, "IDENTITY_WEAK", True, said, mend, lasts=True)
            return


def refused(now: Mapping[str, Any], version: int) -> str:
    """Return why Postgres refuses the application's updates and deletes of a published table; empty else."""
    generated = {column[0] for column in (now["columns"] or {}).values() if column[3]}
    for unit in _tables(now):
        if unit["identity"] == "n" or (unit["identity"] in "di" and not unit["key"]):
            return "its replica identity is gone"
        inside = generated if unit["identity"] == "f" else generated & set(unit["key"] or ())
        if version >= GENERATED_REFUSED and inside:
            return f"its replica identity has the generated column {min(inside)} in it"
    return ""


def identified(schema: TableSchema, now: Mapping[str, Any], version: int) -> str:
    """Return the statements that give the table a replica identity of which Postgres refuses nothing.

    They are empty where only an index over the key would do: which one is for the owner to choose.
    """
    units, limits = _tables(now), _limits(now, version)
    if now["key"] and not schema.declared:
        keyed = alter([unit["name"] for unit in units if unit["keyed"]], DEFAULT, limits, now["key"])
        others = (
            guarding(one["name"], one["number"], now["key"], limits) for one in units if not one["keyed"]
        )
        return " ".join(filter(None, (keyed, *others)))
    return alter([unit["name"] for unit in units], FULL, limits)


def _tables(now: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the table, or its partitions without those that are foreign: these have no replica identity."""
    return [unit for unit in (now["units"] or {}).values() if not unit["foreign"]]


def _limits(now: Mapping[str, Any], version: int) -> Limits:
    generated = {column[0] for column in (now["columns"] or {}).values() if column[3]}
    return Limits.of(generated if version >= GENERATED_REFUSED else (), now)


def taken_back(
    schema: TableSchema, before: Mapping[str, Any], now: Mapping[str, Any], *, full: bool
) -> Iterator[Trouble]:
    """Yield when a replica identity was another one between two looks that both saw the same."""
    if _has_another_key(schema, now):  # which says all, and is not over when the rows are read anew
        return
    was = before["units"] or {}
    for oid, unit in (now["units"] or {}).items():
        old = was.get(oid)
        if old is None or old["identity"] != unit["identity"]:
            continue
        indexes = old["indexes"] or {}
        again = any(
            oid in indexes and indexes[oid][0] != index[0] and indexes[oid][1] == index[1]
            for oid, index in (unit["indexes"] or {}).items()
        )
        again = again or _remade(old.get("anchor"), unit["anchor"])
        # Without an index only the table's own row tells; a GRANT that changes nothing looks the same.
        same = old["version"] != unit["version"] and old["said"] == unit["said"]
        if _left_alone(schema, old.get("keepers"), unit["keepers"]):
            said = "what makes its key unique was made anew: two rows may have been taken for one meanwhile"
            yield Trouble(schema.table, "IDENTITY_TAKEN_BACK", True, said)
            return
        if again or (full and unit["identity"] == "f" and same):
            said = "its replica identity may have been another one for a while"
            yield Trouble(schema.table, "IDENTITY_TAKEN_BACK", True, said)
            return


def _left_alone(
    schema: TableSchema, before: Sequence[Sequence[Any]] | None, now: Sequence[Sequence[Any]] | None
) -> bool:
    """Return whether no index that told rows of one key apart is there any more, and others are that do.

    Only where the log tells whole rows: elsewhere the index is that of the replica identity. An index may
    have become a constraint's since, and REINDEX CONCURRENTLY may have put another one beneath a constraint.
    What it has made without a constraint took its place at one moment. One that has kept its file, too.
    """
    was, are = (
        [({index, constraint}, at_once, {*file})
         for index, constraint, columns, at_once, *file in keepers or ()
         if set(columns) <= set(schema.key)]
        for keepers in (before, now)
    )  # fmt: skip
    known = {number for numbers, _, _ in was for number in numbers} - {None}
    files = {number for _, _, file in was for number in file}
    lasted = any(numbers & known or at_once or file & files for numbers, at_once, file in are)
    return bool(was and are) and not lasted


def _remade(before: list[Any] | None, now: list[Any] | None) -> bool:
    """Return whether the index of a replica identity, or its constraint, was dropped and made anew.

    REINDEX CONCURRENTLY puts another index in its place, too: at one moment, which the rows of the index in
    the catalogue tell, and later than its columns were made. A type that only grows makes another index
    of the same file, in the transaction that drops the former one.
    """
    if before is None or now is None:  # facts of an older version, or none that could be compared
        return False
    (_, was, *file), (kind, is_now, *file_now) = before, now
    return bool(was != is_now and kind != "swapped" and not (file and file == file_now))
