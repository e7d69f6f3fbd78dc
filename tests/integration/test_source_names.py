"""A database may be called anything that `source check` lets through: the connector reads that very one."""

from __future__ import annotations

from urllib.parse import quote, urlsplit, urlunsplit

import pytest

from headrace.config.source import SourceSettings
from headrace.control import source, source_check
from headrace.control.context import Context
from headrace.control.kafka import Kafka
from headrace.model.errors import SourceError
from headrace.model.finding import Severity
from tests.support.database import Database, fresh_database
from tests.support.stack import RunningStack

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

NAMES = (
    "a b",
    "a/b",
    "a#b",
    "a&b",
    "a;b",
    "a:b",
    "a=b",
    "a'b",
    'a"b',
    "a\\b",
    "A",
    "a.b",
    "a,b",
    "a@b",
    "a|b",
    "ä€",
    "a-b",
    "a+b",
    "a%b",
    "a?b",
    "a$b",
    "${b}",
    "a{b}",
    "a<b>",
    "a*b",
    "a~b",
    "a!b",
    "a(b)",
    "a^b",
    "a`b",
    "[a]",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_database_of_that_name_is_read_or_refused_by_it(
    context: Context, stack: RunningStack, name: str
) -> None:
    with fresh_database(stack.endpoints.postgres_dsn, name) as made:
        database = Database(urlunsplit(urlsplit(made.dsn)._replace(path="/" + quote(name, safe=""))))
        database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        refused = {one.code for one in source_check.check(database.dsn) if one.severity is Severity.ERROR}
        assert refused <= {"SOURCE_DATABASE_NAME"}
        if refused:
            with pytest.raises(SourceError) as caught:
                source.add(context, "named", database.dsn)
            assert caught.value.code == "SOURCE_DATABASE_NAME"
            return
        source.add(context, "named", database.dsn, settings=SourceSettings(heartbeat_ms=300))
        try:
            assert Kafka(context.kafka_bootstrap).ends(["named.public.t"])["named.public.t", 0][1] > 0
            assert (
                database.value("SELECT database FROM pg_replication_slots WHERE slot_name = 'headrace_named'")
                == name
            )
        finally:
            source.remove(context, "named")
