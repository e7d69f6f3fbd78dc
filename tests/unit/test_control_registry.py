"""The registry: private, consistent between processes, and never generous with epochs."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from headrace.config.secrets import SecretRef, mask_settings, mask_text, mask_url
from headrace.config.source import valid_name
from headrace.control.registry import Registry, SourceEntry
from headrace.model.errors import EnvironmentError_, UsageError
from headrace.model.schema import Column, LogicalType, TableId, TableSchema
from tests.support.entries import source_entry
from tests.support.waiting import ended


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "deep" / "registry.db")


def _entry(name: str) -> SourceEntry:
    schema = TableSchema(TableId("public", "t"), (Column("id", LogicalType.INT32),), ("id",))
    return source_entry(name, [schema])


def test_the_file_is_private_and_in_wal_mode(registry: Registry, tmp_path: Path) -> None:
    mode = (tmp_path / "deep" / "registry.db").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    with registry.begin() as session:
        assert session.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert session.execute(text("PRAGMA foreign_keys")).scalar() == 1


def test_who_opens_it_anew_leaves_the_locks_of_this_process(registry: Registry, tmp_path: Path) -> None:
    """A lock that is lost lets the other process delete the log that this one goes on writing to."""
    path = tmp_path / "deep" / "registry.db"
    look = (
        "import sys; from pathlib import Path; from headrace.control.registry import Registry\n"
        "print(Registry(Path(sys.argv[1])).next_epoch('t'))"
    )

    def elsewhere() -> str:
        command = [sys.executable, "-c", look, str(path)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    with closing(sqlite3.connect(path, isolation_level=None)) as held:
        held.execute("SELECT count(*) FROM sources").fetchall()
        Registry(path)
        elsewhere()
        held.execute("UPDATE topics SET epoch = 9000000")
        assert elsewhere() == "9000001"


def test_an_unknown_source_is_named_with_the_known_ones(registry: Registry) -> None:
    with registry.begin() as session:
        session.add(_entry("shop"))
    with pytest.raises(UsageError) as caught:
        registry.source("shoop")
    assert caught.value.code == "SOURCE_UNKNOWN"
    assert "shop" in caught.value.hint
    assert registry.only_source().tables[0].schema.table == TableId("public", "t")


def test_which_source_is_asked_when_there_are_two_or_none(registry: Registry) -> None:
    with pytest.raises(UsageError, match="No source"):
        registry.only_source()
    with registry.begin() as session:
        session.add_all([_entry("a"), _entry("b")])
    with pytest.raises(UsageError, match="Several"):
        registry.only_source()


def test_epochs_of_a_topic_always_rise_even_when_the_registry_was_lost(
    registry: Registry, tmp_path: Path
) -> None:
    first, second = registry.next_epoch("t"), registry.next_epoch("t")
    assert second > first
    anew = Registry(tmp_path / "other.db")
    assert anew.next_epoch("t", above=second) > second
    assert first > 0


def test_a_removed_source_takes_its_tables_along_but_not_its_epochs(registry: Registry) -> None:
    first = registry.next_epoch("shop.public.t")
    with registry.begin() as session:
        session.add(_entry("shop"))
    with registry.begin() as session:
        session.delete(session.get_one(SourceEntry, "shop"))
    assert registry.sources() == []
    assert registry.next_epoch("shop.public.t") > first


@pytest.mark.parametrize("name", ["shop", "a", "a_1", "x" * 31])
def test_a_plain_name_is_taken(name: str) -> None:
    assert valid_name(name, of="source") == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Shop",
        "1a",
        "_a",
        "a-b",
        "a.b",
        "a b",
        "x" * 32,
        "shop\n",
        "ſhop",
        "a'; DROP TABLE x; --",
        "../a",
        "list",
    ],
)
def test_a_name_that_could_harm_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        valid_name(name, of="source")
    assert caught.value.code == "NAME_INVALID"


@pytest.mark.parametrize("secret", ["plain", "a=b#c!d\\e", " lead", "ünï😀", "${file:x:y}", "a\nb", ""])
def test_a_secret_survives_its_file_and_shows_nowhere(secret: str, tmp_path: Path) -> None:
    ref = SecretRef(tmp_path / "s" / "shop.properties", "password")
    ref.store(secret)
    assert ref.read() == secret
    assert stat.S_IMODE(ref.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(ref.path.parent.stat().st_mode) == 0o700
    assert len(ref.path.read_text().splitlines()) == 1
    if len(secret) > 3:
        assert secret not in f"{ref} {ref!r} {ref.placeholder}"
    ref.forget()
    ref.forget()
    assert not ref.path.exists()


def test_what_is_shown_holds_no_secret() -> None:
    canary = "c4nary"
    url = f"postgres://me:{canary}@db:5432/shop?sslmode=require"
    assert mask_url(url) == "postgres://me:***@db:5432/shop?sslmode=require"
    shown = mask_settings(
        {
            "url": f"redis://:{canary}@h:1/0",
            "api_key": canary,
            "nested": {"password": canary},
            "format": "json",
        }
    )
    assert canary not in str(shown)
    assert shown["format"] == "json"
    for text_ in (
        f"failed for {url}",
        f"password={canary} host=x",
        f"password='{canary} x' host=x",
        f"postgres://me:p@ss/{canary}@db:5432/shop",
        f"postgres://me:x@db/shop?sslpassword={canary}&sslmode=require",
        f"http://a:{canary}@one:9200,http://b:{canary}@two:9200",
        f"api_key={canary} refused",
    ):
        assert canary not in mask_text(text_)
        assert canary not in mask_url(text_)


def test_a_registry_of_another_version_or_a_damaged_one_is_refused_by_name(tmp_path: Path) -> None:
    other = Registry(tmp_path / "other.db")
    with other.begin() as session:
        session.execute(text("PRAGMA user_version = 99"))
    with pytest.raises(EnvironmentError_) as caught:
        Registry(tmp_path / "other.db")
    assert caught.value.code == "REGISTRY_VERSION"
    (tmp_path / "damaged.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(EnvironmentError_) as caught:
        Registry(tmp_path / "damaged.db")
    assert caught.value.code == "REGISTRY_UNUSABLE"
    torn = Registry(tmp_path / "torn.db")
    with torn.begin() as session:
        session.add(_entry("shop"))
        session.flush()
        session.execute(text("UPDATE sources SET settings = '{\"a\": '"))
    with pytest.raises(EnvironmentError_) as caught:
        torn.sources()
    assert caught.value.code == "REGISTRY_UNUSABLE"


def test_a_registry_of_before_gains_what_it_lacks(tmp_path: Path) -> None:
    older = Registry(tmp_path / "r.db")
    older.note("source shop", "added")
    with older.begin() as session:
        for statement in (
            "DROP TABLE dead_letters",
            "DROP TABLE dead_letter_files",
            "DROP TABLE begun",
            "DROP TABLE begun_targets",
            "ALTER TABLE sinks DROP COLUMN on_schema_change",
            "ALTER TABLE watched DROP COLUMN beats",
            "ALTER TABLE sources DROP COLUMN adding",
            "PRAGMA user_version = 1",
        ):
            session.execute(text(statement))
    with Registry(tmp_path / "r.db").begin() as session:
        assert session.execute(text("SELECT count(*) FROM dead_letters")).scalar() == 0
        assert session.execute(text("SELECT count(*) FROM journal")).scalar() == 1
        assert session.execute(text("SELECT count(on_schema_change) FROM sinks")).scalar() == 0
        assert session.execute(text("PRAGMA user_version")).scalar() == 13


def test_a_registry_of_the_version_before_gains_a_column(tmp_path: Path) -> None:
    with Registry(tmp_path / "r.db").begin() as session:
        session.execute(text("ALTER TABLE sinks DROP COLUMN left_out"))
        session.execute(text("PRAGMA user_version = 12"))
    with Registry(tmp_path / "r.db").begin() as session:
        assert session.execute(text("SELECT count(left_out) FROM sinks")).scalar() == 0


def test_who_reads_waits_for_nobody_and_changes_nothing(tmp_path: Path) -> None:
    """Also while another process is in the middle of a change; it is opened in that time, too."""
    registry = Registry(tmp_path / "r.db")
    registry.note("source shop", "added")
    with registry.begin() as session:
        session.execute(text("DELETE FROM journal"))
        assert len(Registry(tmp_path / "r.db").journal()) == 1
    assert registry.journal() == []
    with pytest.raises(EnvironmentError_), registry.reading() as session:
        session.execute(text("DELETE FROM topics"))


def test_two_processes_may_open_a_new_registry_at_once(tmp_path: Path) -> None:
    code = "import sys, pathlib, headrace.control.registry as r; r.Registry(pathlib.Path(sys.argv[1]))"
    runs = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "r.db")]) for _ in range(4)]
    assert [ended(run) for run in runs] == [0, 0, 0, 0]
