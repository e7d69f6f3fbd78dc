"""A server that does not let us in, and says so in another language than English."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from connectors.postgres import PostgresSource
from headrace.model.errors import LoginRefused, SourceError
from tests.support.database import Database
from tests.support.servers import postgres_server
from tests.support.waiting import until
from tests.support.wire import wire

pytestmark = pytest.mark.stack

REFUSED = (
    ("postgres", "guarded", "password authentication failed", "Check user and password."),
    ("postgres", "nobody", 'role "nobody" does not exist', "Check the user's name"),
    ("nowhere", "plain", 'database "nowhere" does not exist', "Check the database's name"),
    ("closed", "plain", "permission denied for database", 'GRANT CONNECT ON DATABASE "closed" TO "plain";'),
    (
        "shut",
        "plain",
        "is not currently accepting connections",
        'ALTER DATABASE "shut" ALLOW_CONNECTIONS true;',
    ),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with postgres_server(18) as dsn:
        made = Database(dsn)
        made.run(
            "CREATE ROLE plain LOGIN",
            "CREATE ROLE guarded LOGIN PASSWORD 'right'",
            "CREATE DATABASE closed",
            "REVOKE CONNECT ON DATABASE closed FROM PUBLIC",
            "CREATE DATABASE shut ALLOW_CONNECTIONS false",
        )
        rules = Path(made.value("SHOW hba_file"))
        rules.write_text(f"host all guarded all scram-sha-256\n{rules.read_text()}")
        made.run("SELECT pg_reload_conf()")
        until(lambda: "guarded" in str(made.run("SELECT user_name FROM pg_hba_file_rules")))
        yield made


@pytest.mark.parametrize(("database", "user", "words", "hint"), REFUSED)
def test_what_helps_is_told_by_the_code_and_not_by_the_words(
    server: Database, database: str, user: str, words: str, hint: str
) -> None:
    parts = urlsplit(server.dsn)
    with wire("127.0.0.1", parts.port or 0) as line:
        line.alter(words.encode(), "nicht so! ".ljust(len(words), "-").encode())
        other = parts._replace(netloc=f"{user}:wrong@127.0.0.1:{line.port}", path=f"/{database}")
        with pytest.raises(SourceError) as caught:
            PostgresSource(urlunsplit(other)).tables(["public"])
    assert "nicht so!" in caught.value.message
    assert caught.value.code == "SOURCE_UNREACHABLE"
    assert caught.value.hint.startswith(hint)
    assert isinstance(caught.value, LoginRefused) == (user == "guarded")
