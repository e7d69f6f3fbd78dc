"""No secret is anywhere but in the private files that hold it: each is searched for in all there is."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest
from redis import Redis
from typer.testing import CliRunner

from headrace.cli.context import open_context
from headrace.cli.main import app
from headrace.control import lag, sink, source
from headrace.control.rotate import rotate_sink, rotate_source
from headrace.control.runner import stop_engine
from headrace.local.credentials import Credentials
from headrace.model.errors import HeadraceError
from tests.support.database import fresh_database
from tests.support.patience import WAIT_S
from tests.support.remedy import carry_out
from tests.support.stack import RunningStack
from tests.support.waiting import letters, settle, until

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

NAME = "canary"
TOO_DEEP = '{"a":' * 150 + "%s" + "}" * 150


def a_canary(of: str) -> str:
    return f"c4nary-{of}-{secrets.token_hex(6)}"


class Place:
    """A source and three sinks, each with a secret of its own."""

    def __init__(self, stack: RunningStack) -> None:
        self.stack = stack
        self.context = open_context(stack.home.root)
        self.said: list[str] = []
        known = Credentials.load(stack.home.root)
        self.canaries = {name: getattr(known, name) for name in Credentials.__dataclass_fields__}
        for name in ("role", "role_next", "cache", "cache_next", "wrong", "url", "value"):
            self.canaries[name] = a_canary(name)

    def headrace(self, *words: str, code: int = 0) -> Any:
        """Run a command, remember all that it says, and return its JSON."""
        done = CliRunner().invoke(app, [*words, "--json", "--home", str(self.stack.home.root)])
        self.said.append(done.output)
        assert done.exit_code == code or code < 0, done.output
        return json.loads(done.stdout) if done.exit_code == 0 else None

    def fails(self, *words: str) -> None:
        self.headrace(*words, code=-1)
        plain = CliRunner().invoke(app, [*words, "--home", str(self.stack.home.root)])
        assert plain.exit_code != 0, plain.output
        self.said.append(plain.output)


@pytest.fixture(scope="module")
def place(stack: RunningStack) -> Iterator[Place]:
    place = Place(stack)
    one, at = place.canaries, stack.endpoints
    operators: Any = Redis.from_url(stack.redis_admin_url)
    operators.execute_command("ACL", "SETUSER", NAME, "on", f">{one['cache']}", "~*", "&*", "+@all")
    with fresh_database(at.postgres_dsn, NAME) as database:
        database.run(
            "DROP ROLE IF EXISTS canary_role",
            f"CREATE ROLE canary_role SUPERUSER LOGIN PASSWORD '{one['role']}'",
            "CREATE TABLE notes (id int PRIMARY KEY, body jsonb)",
            "INSERT INTO notes SELECT n, '{}' FROM generate_series(1, 20) n",
        )
        host = database.dsn.rpartition("@")[2]
        try:
            source.add(place.context, NAME, f"postgresql://canary_role:{one['role']}@{host}")
            redis_url = at.redis_url.rpartition("@")[2]
            place.headrace("sink", "add", f"{NAME}search", "--kind", "elasticsearch", "--source", NAME)
            place.headrace(
                *("sink", "add", f"{NAME}cache", "--kind", "redis", "--source", NAME),
                *("--url", f"redis://{NAME}:{one['cache']}@{redis_url}"),
            )
            place.headrace("sink", "add", f"{NAME}lake", "--kind", "delta", "--source", NAME)
            settle(place.context)
            yield place
        finally:
            for short in ("search", "cache", "lake"):
                try:
                    sink.remove(place.context, f"{NAME}{short}", purge=True)
                except HeadraceError:
                    continue
            source.remove(place.context, NAME)
            stop_engine(place.context.run)
            operators.execute_command("ACL", "DELUSER", NAME)
    with psycopg.connect(at.postgres_dsn, autocommit=True) as server:
        server.execute("DROP ROLE IF EXISTS canary_role")


def errors_happen(place: Place) -> None:
    """Give wrong passwords, name servers that do not answer, and a row that a store refuses."""
    one, at = place.canaries, place.stack.endpoints
    kinds = {"elasticsearch": at.elasticsearch_url, "redis": at.redis_url}
    for kind, url in kinds.items():
        host = url.rpartition("@")[2]
        scheme = url.partition(":")[0]
        add = ("sink", "add", "wrong", "--kind", kind, "--source", NAME)
        place.fails(*add, "--url", f"{scheme}://headrace:{one['wrong']}@{host}")
        place.fails(*add, "--url", f"{scheme}://headrace:p@{one['url']}@127.0.0.1:1/")
        login = ("--set", "username=headrace", "--set", f"password={one['wrong']}")
        place.fails(*add, "--url", f"{scheme}://{host}", *login)
    place.fails("source", "check", f"postgresql://me:{one['wrong']}@127.0.0.1:1/x?sslpassword={one['url']}")
    dsn = at.postgres_dsn
    place.fails("source", "add", "x", f"postgresql://canary_role:{one['wrong']}@{dsn.rpartition('@')[2]}")
    with psycopg.connect(dsn.rpartition("/")[0] + f"/{NAME}", autocommit=True) as connection:
        deep = TOO_DEEP % json.dumps(one["value"])
        connection.execute("INSERT INTO notes VALUES (99, %s)", (deep,))
        connection.execute("INSERT INTO notes VALUES (100, '{}')")
    until(lambda: bool(letters(place.context)))


def passwords_change(place: Place) -> None:
    """Change the passwords of a source and a sink; both go on."""
    one = place.canaries
    with psycopg.connect(place.stack.endpoints.postgres_dsn, autocommit=True) as server:
        server.execute(f"ALTER ROLE canary_role PASSWORD '{one['role_next']}'".encode())
    with pytest.raises(HeadraceError):
        rotate_source(place.context, NAME, one["wrong"])
    with psycopg.connect(place.stack.endpoints.postgres_dsn, autocommit=True) as server:
        server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'canary_role'")
    until(lambda: lag.measure(place.context).sources[0].state is lag.State.DEGRADED)
    told = next(found.remedy for found in lag.measure(place.context).sources if found.source == NAME)
    assert told == f"headrace source rotate {NAME} env:VARIABLE"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VARIABLE", one["role_next"])
        carry_out(told, place.stack.home.root, str)
    operators: Any = Redis.from_url(place.stack.redis_admin_url)
    operators.execute_command("ACL", "SETUSER", NAME, "resetpass", f">{one['cache_next']}")
    with pytest.raises(HeadraceError):
        rotate_sink(place.context, f"{NAME}cache", {"password": one["wrong"]})
    rotate_sink(place.context, f"{NAME}cache", {"password": one["cache_next"]})
    with psycopg.connect(
        place.stack.endpoints.postgres_dsn.rpartition("/")[0] + f"/{NAME}", autocommit=True
    ) as connection:
        connection.execute("INSERT INTO notes VALUES (101, '{}')")
    operators.execute_command("CLIENT", "KILL", "USER", NAME)
    cache = Redis.from_url(place.stack.redis_admin_url)
    until(lambda: bool(cache.exists(f"{NAME}:notes:101")))


def everything_written(place: Place) -> Iterator[tuple[str, bytes]]:
    """Yield every file of the home but those that are there to hold a secret, or the rows themselves."""
    home = place.stack.home
    private = {
        home.root / "credentials.json",
        home.kafka_properties,
        home.root / "config",
        home.run / "context.json",
        home.secrets,
        place.context.sink_secrets,
        home.data("postgres"),
    }
    for path in sorted(home.root.rglob("*")):
        if path.is_file() and not private & {path, *path.parents}:
            yield str(path.relative_to(home.root)), path.read_bytes()


def everything_said(place: Place) -> Iterator[tuple[str, bytes]]:
    for words in (
        ("lag",),
        ("source", "list"),
        ("source", "show", NAME),
        ("sink", "list"),
        *(("sink", "show", f"{NAME}{short}") for short in ("search", "cache", "lake")),
        ("journal",),
        ("dlq", "list", "--state", "all"),
    ):
        place.headrace(*words, code=-1)  # what is wrong with it is not the question
    yield "what commands said", "\n".join(place.said).encode()
    for process in psutil.process_iter():
        try:
            yield f"argv of {process.pid}", " ".join(process.cmdline()).encode()
            if "headrace.control.supervise" in process.cmdline():
                for one in (process, *process.children(recursive=True)):
                    yield f"environment of {one.pid}", str(one.environ()).encode()
        except psutil.Error:
            continue
    with httpx.Client(base_url=place.context.connect_url, timeout=WAIT_S) as connect:
        for asked in ("?expand=info&expand=status", f"/headrace_{NAME}/config", f"/headrace_{NAME}/tasks"):
            yield f"Connect's {asked}", connect.get(f"/connectors{asked}").content


def test_no_secret_is_where_it_does_not_belong(place: Place) -> None:
    errors_happen(place)
    passwords_change(place)
    value = place.canaries.pop("value")
    assert lag.measure(place.context).sinks
    found = []
    for where, content in (*everything_written(place), *everything_said(place)):
        held = [name for name, canary in place.canaries.items() if canary.encode() in content]
        found += [f"{name} in {where}" for name in held]
        # A row lies in Kafka, in the stores and in the letter that keeps it whole, and nowhere else.
        rows = where.startswith(("data/", "lake/", "checkpoints/"))
        found += [f"the row's value in {where}"] * (value.encode() in content and not rows)
    assert not found


def test_private_files_are_private(place: Place) -> None:
    for folder in (place.stack.home.secrets, place.context.sink_secrets):
        files = [path for path in Path(folder).iterdir() if path.is_file()]
        assert files
        assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
