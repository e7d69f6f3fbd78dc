"""Talking to Redis: scripts over a window of outstanding calls, and one kind of error per trouble."""

from __future__ import annotations

import hashlib
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import hiredis
from pydantic import BaseModel, ConfigDict, Field, SecretStr
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,  # noqa: A004
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    TimeoutError,  # noqa: A004
)
from redis.retry import Retry

from headrace.model.errors import SinkError, SinkUnavailable
from sinks.about import ROTATE
from sinks.shadow import ShadowName

__all__ = ["Call", "Client", "RedisConfig", "Script", "code_word", "refusal", "store_errors"]

_WINDOW = 3
"""Calls sent ahead of the answers read: Redis works on one while the next is being built."""

_PROVEN_S = 1.0
"""For so long after its last answer a connection is used as it is."""

_PIPELINED = re.compile(r"^Command # \d+ \(.*\) of pipeline caused error: ", re.DOTALL)
_CODE_WORD = re.compile(r"(?:^|-)([A-Z]{2,})\b")


class RedisConfig(BaseModel):
    """Settings of a Redis sink.

    Args:
        url: ``redis://host:port/db`` or ``rediss://`` for TLS.
        username: User of the server's access list; without one, its default user.
        password: The user's.
        key_prefix: What every key of this sink begins with.
        key_template: Shape of a row's key: ``{table}:`` inside, ``{pk}`` at the end.
        format: ``json``, a string of JSON per row; or ``hash``, a hash per row, columns as text.
        tombstone_hours: How long a deleted row is remembered against replays of its past.
        timeout: Seconds to wait for one answer.
        shadow: See :mod:`sinks.shadow`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    username: str | None = None
    password: SecretStr | None = None
    key_prefix: str = ""
    key_template: str = Field(
        default="{prefix}{table}:{pk}", pattern=r"^[^{}]*(\{prefix\})?[^{}]*\{table\}:[^{}]*\{pk\}$"
    )
    format: str = Field(default="json", pattern="^(json|hash)$")
    tombstone_hours: float = Field(default=24, gt=0)
    timeout: float = Field(default=30, gt=0)
    shadow: ShadowName = ""


class Script(NamedTuple):
    """A Lua script and the name Redis knows it by."""

    text: str
    sha: str

    @classmethod
    def of(cls, text: str) -> Script:
        """Name a script."""
        return cls(text, hashlib.sha1(text.encode()).hexdigest())  # noqa: S324 - Redis' own naming


class Call(NamedTuple):
    """One script call; ``tag`` comes back with its answer."""

    tag: Any
    keys: Sequence[bytes | str]
    args: Sequence[Any]


def code_word(text: str) -> str:
    """Return the word an error begins with, also when it comes out of a script: ``OOM``, ``READONLY``."""
    found = _CODE_WORD.search(text)
    return found[1] if found else ""


def refusal(error: RedisError | str) -> SinkError:
    """Return the error that Redis' words stand for."""
    text = _PIPELINED.sub("", str(error))
    word = "OOM" if isinstance(error, OutOfMemoryError) else code_word(text)
    if isinstance(error, AuthenticationError) or word in ("NOAUTH", "WRONGPASS"):
        hint = f"{ROTATE}--set username=… --set password=env:VARIABLE"
        return SinkError(f"Redis does not know these credentials: {text}", code="REDIS_AUTH", hint=hint)
    if isinstance(error, NoPermissionError) or word == "NOPERM":
        rights = "+@read +@write +@scripting +@transaction +@connection +info"
        hint = f"The user needs ~<key_prefix>* with {rights}."
        return SinkError(f"Redis forbids it: {text}", code="REDIS_FORBIDDEN", hint=hint)
    if isinstance(error, ReadOnlyError) or word == "READONLY":
        hint = "The server is a replica: point the url at the primary."
        return SinkError("Redis takes no writes here.", code="REDIS_READONLY", hint=hint)
    if word in ("CROSSSLOT", "MOVED", "ASK", "CLUSTERDOWN"):
        hint = "Use a Redis without cluster mode."
        return SinkError(f"This is a Redis Cluster: {text}", code="REDIS_CLUSTER", hint=hint)
    if isinstance(error, (BusyLoadingError, ConnectionError, TimeoutError)):
        hint = "Is it running, and is the url right?"
        return SinkUnavailable(f"Redis does not answer: {text}", code="REDIS_UNREACHABLE", hint=hint)
    if word in ("LOADING", "BUSY", "MASTERDOWN", "MISCONF", "NOREPLICAS", "TRYAGAIN", "OOM"):
        return SinkUnavailable(f"Redis asks for patience: {text}", code="REDIS_BUSY", hint="")
    return SinkError(f"Redis refuses: {text}", code="REDIS_REFUSED", hint="")


@contextmanager
def store_errors() -> Iterator[None]:
    """Turn what the client library raises into the sink's errors."""
    try:
        yield
    except RedisError as error:
        raise refusal(error) from error


class Client:
    """A connection pool to one server, opened on first use."""

    def __init__(self, config: RedisConfig) -> None:
        login: dict[str, Any] = {"username": config.username} if config.username else {}
        if config.password is not None:
            login["password"] = config.password.get_secret_value()
        timeouts = {"socket_timeout": config.timeout, "socket_connect_timeout": min(10.0, config.timeout)}
        # A server that takes no writes may have been the primary, and its address lead elsewhere now: once
        # more, upon a new connection. Nothing else is sent twice, for it may have been done.
        retry = Retry(NoBackoff(), 1, (ReadOnlyError,))
        moved = {"retry": retry, "retry_on_error": [ReadOnlyError]}
        self.redis: Redis = Redis.from_url(config.url, **login, **timeouts, **moved)
        self._proven: list[tuple[Any, float]] = []
        """Connections whose last answer has come, and when; the pool would look at each before it is used."""

    def run(self, script: Script, calls: Iterable[Call]) -> Iterator[tuple[Any, list[bytes]]]:
        """Run a script once per call and yield each call's tag and answer, in their order.

        ``calls`` is drawn from while earlier calls are being worked on. A call may run twice.

        Raises:
            RedisError: As the client library does; also for a call that Redis refuses as a whole.
        """
        connection = self._lent()
        pending: deque[Call] = deque()
        whole = False
        try:
            for call in calls:
                # The client's own packing looks at every argument once more in Python.
                words = (b"EVALSHA", script.sha, len(call.keys), *call.keys, *call.args)
                connection.send_packed_command([hiredis.pack_command(words)])
                pending.append(call)
                if len(pending) >= _WINDOW:
                    yield self._answer(connection, script, pending.popleft())
            while pending:
                yield self._answer(connection, script, pending.popleft())
            whole = True
        finally:
            if whole:
                self._proven.append((connection, time.monotonic()))
            else:
                self._give_up(connection)

    def _answer(self, connection: Any, script: Script, call: Call) -> tuple[Any, list[bytes]]:
        try:
            return call.tag, connection.read_response()
        except NoScriptError:  # from now on Redis knows it; what was sent before is told in full as well
            return call.tag, self.redis.eval(script.text, len(call.keys), *call.keys, *call.args)
        except OutOfMemoryError as error:
            return call.tag, [b"E" * len(call.keys), *([f"OOM {error}".encode()] * len(call.keys))]

    def _lent(self) -> Any:
        try:
            connection, proven = self._proven.pop()
        except IndexError:
            return self.redis.connection_pool.get_connection()
        if time.monotonic() - proven < _PROVEN_S:
            return connection
        self.redis.connection_pool.release(connection)
        return self.redis.connection_pool.get_connection()

    def _give_up(self, connection: Any) -> None:
        """Close a connection with answers nobody waits for, and those that may have ended as it did."""
        ended = [connection]
        with suppress(IndexError):
            while True:
                ended.append(self._proven.pop()[0])
        for each in ended:
            each.disconnect()
            self.redis.connection_pool.release(each)
