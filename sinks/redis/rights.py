"""Which commands a sink takes and upon which keys, and what of it its user is not allowed.

Redis asks its access list when a command is queued in a transaction, and does nothing before the end of it.
So each command is queued, those of scripts with the others, and the connection ends before the transaction
does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from redis.exceptions import NoPermissionError, ResponseError

from headrace.model.errors import SinkError
from sinks.redis.client import Client, RedisConfig
from sinks.redis.names import glob, heads

__all__ = ["COMMANDS", "lacking"]

_KEY = "<key>"
COMMANDS = (
    "INFO server",
    "SCAN 0",
    "EVAL return 0",
    "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
    "EXISTS <key>",
    "DEL <key>",
    "UNLINK <key>",
    "RENAME <key> <key>",
    "PTTL <key>",
    "PEXPIRE <key> 1",
    "PERSIST <key>",
    "GET <key>",
    "GETRANGE <key> 0 1",
    "MGET <key>",
    "SET <key> value",
    "SETNX <key> value",
    "MSET <key> value",
    "HGET <key> field",
    "HMGET <key> field",
    "HGETALL <key>",
    "HKEYS <key>",
    "HLEN <key>",
    "HEXISTS <key> field",
    "HSCAN <key> 0",
    "HSET <key> field value",
    "HSETNX <key> field value",
    "HINCRBY <key> field 1",
    "HDEL <key> field",
    "LRANGE <key> 0 1",
    "LTRIM <key> 0 1",
    "RPUSH <key> value",
)
"""Every command of the sink and of its scripts, with as many words as it needs, but MULTI and EXEC."""

_ALL = ["MULTI", "EXEC", *(command.partition(" ")[0] for command in COMMANDS)]
_COMMAND = re.compile(r"to run the '([^' |]+)")


def lacking(client: Client, config: RedisConfig, tables: Sequence[str]) -> SinkError | None:
    """Return what the user is not allowed; None when it is allowed all.

    Args:
        client: Of the server.
        config: Of the sink.
        tables: What the keys of each table's rows begin with, as far as tables are known.

    Raises:
        RedisError: When the server does not answer, or for a reason that is not the user's rights.
    """
    pool = client.redis.connection_pool
    rows, own = heads(config.key_prefix, config.key_template)
    try:
        connection: Any = pool.get_connection()
    except NoPermissionError as error:  # of what a connection begins with
        return _forbidden(client, [*_named(str(error)), *_ALL], [])
    try:
        if not _opened(connection):
            return _forbidden(client, _ALL, [])
        refused = _refused(connection, [["EXEC"]])
        connection.disconnect()  # a transaction whose end is refused may be over, or not
        if not _opened(connection):
            return _forbidden(client, _ALL, [])
        for head in (own, *tables):
            refused += _refused(connection, [_words(command, head) for command in COMMANDS])
    finally:
        connection.disconnect()
        pool.release(connection)
    commands = [name for text in refused for name in _named(text)]
    shut = not all(map(_named, refused))
    return _forbidden(client, commands, [rows, own] if shut else []) if refused else None


def _opened(connection: Any) -> bool:
    """Begin a transaction; return whether the user may, for else what follows would be carried out.

    Raises:
        RedisError: When there is none for another reason.
    """
    connection.send_command("MULTI")
    try:
        connection.read_response()
    except NoPermissionError:
        return False
    return True


def _words(command: str, key: str) -> list[str]:
    return [key if word == _KEY else word for word in command.split(" ")]


def _refused(connection: Any, commands: Sequence[Sequence[str]]) -> list[str]:
    """Return why the user may not have some commands queued; what else is wrong is told elsewhere."""
    connection.send_packed_command(connection.pack_commands(commands))
    refused = []
    for _ in commands:
        try:
            connection.read_response()
        except ResponseError as error:
            if isinstance(error, NoPermissionError) or "NOPERM" in str(error):  # of EXEC it is in the middle
                refused.append(str(error))
    return refused


def _named(refused: str) -> list[str]:
    """Return the command that is forbidden; none where it is the key."""
    return [name.upper() for name in _COMMAND.findall(refused)]


def _forbidden(client: Client, commands: Sequence[str], shut: Sequence[str]) -> SinkError:
    user = client.redis.connection_pool.connection_kwargs.get("username") or "default"
    names = list(dict.fromkeys(commands))
    patterns = [f"{glob(head)}*" for head in shut if not head.startswith(tuple({*shut} - {head}))]
    what = [", ".join(names)] if names else []
    what += [f"keys like {pattern}" for pattern in patterns]
    rights = [f"~{pattern}" for pattern in patterns] + [f"+{name.lower()}" for name in names]
    return SinkError(
        f"Redis forbids its user {user} what the sink takes: {'; '.join(what)}.",
        code="REDIS_FORBIDDEN",
        hint=f"ACL SETUSER {user} {' '.join(rights)}  (and the same in the server's list of users)",
    )
