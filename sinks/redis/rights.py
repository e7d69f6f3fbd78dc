"""Which commands a sink takes and upon which keys, and what of it its user is not allowed.

Redis asks its access list when a command is queued in a transaction, and does nothing before the end of it.
So each command is queued, those of scripts with the others, and the connection ends before the transaction
does.
"""

from __future__ import annotations

import re
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


def lacking(client: Client, config: RedisConfig) -> SinkError | None:
    """Return what the user is not allowed; None when it is allowed all.

    Raises:
        RedisError: When the server does not answer, or for a reason that is not the user's rights.
    """
    began = heads(config.key_prefix, config.key_template)
    commands: list[str] = []
    shut: list[str] = []
    try:
        connection: Any = client.redis.connection_pool.get_connection()
    except NoPermissionError as error:  # of what a connection begins with
        return _forbidden(client, [*_named(error), *_ALL], [])
    try:
        if _refused(connection, "MULTI"):
            return _forbidden(client, _ALL, [])
        if refused := _refused(connection, "EXEC"):
            commands += _named(refused)
        else:
            _refused(connection, "MULTI")
        for head in began:
            for command in COMMANDS:
                words = (head if word == _KEY else word for word in command.split(" "))
                if refused := _refused(connection, *words):
                    commands += _named(refused)
                    shut += [] if _named(refused) else [head]
    finally:
        connection.disconnect()
        client.redis.connection_pool.release(connection)
    return _forbidden(client, commands, shut) if commands or shut else None


def _refused(connection: Any, *words: str) -> ResponseError | None:
    """Return why the user may not have a command run or queued; what else is wrong is told elsewhere."""
    connection.send_command(*words)
    try:
        connection.read_response()
    except ResponseError as error:
        # Who may not end a transaction is told with the end of it: EXECABORT, because of NOPERM.
        if isinstance(error, NoPermissionError) or "NOPERM" in str(error):
            return error
        if words == ("MULTI",):  # what follows would be carried out
            raise
    return None


def _named(error: ResponseError) -> list[str]:
    """Return the command that is forbidden; none where it is the key."""
    return [name.upper() for name in _COMMAND.findall(str(error))]


def _forbidden(client: Client, commands: list[str], shut: list[str]) -> SinkError:
    user = client.redis.connection_pool.connection_kwargs.get("username") or "default"
    commands, shut = list(dict.fromkeys(commands)), list(dict.fromkeys(shut))
    what = [", ".join(commands)] if commands else []
    what += [f"keys that begin with “{head}”" for head in shut]
    rights = [f"~{glob(head)}*" for head in shut] + [f"+{name.lower()}" for name in commands]
    return SinkError(
        f"Redis forbids its user {user} what the sink takes: {'; '.join(what)}.",
        code="REDIS_FORBIDDEN",
        hint=f"ACL SETUSER {user} {' '.join(rights)}  (and the same in the server's list of users)",
    )
