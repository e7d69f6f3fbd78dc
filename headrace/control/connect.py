"""Kafka Connect's REST interface, as far as one connector per source needs it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential_jitter

from headrace.config.connect import ConnectAddress
from headrace.config.secrets import mask_text, mask_url
from headrace.model.errors import SourceError, StackError, UsageError

__all__ = ["Connect", "ConnectorState"]


class _Busy(Exception):
    """Connect is rebalancing or starting; the same request works soon."""


_EXISTS = {"exists": True}
_HEALTH = "/health"
_PASSING_500 = ("a rebalance is expected", "Request timed out")
"""Some requests meet a rebalance as an error of the server, others as a conflict."""
_ANSWERS_S = 100.0
"""Longer than a worker lets a request wait, such as for the group to lose one that was killed: 90 s."""
_SILENT_S = 60.0
"""So long one that hangs may keep whoever only looks."""
_PATIENCE_S = 30.0
_CHANGES_S = 60.0
_SETTLES_S = 20.0
_ABSENT = "`headrace up` starts the local one; of another, check HEADRACE_CONNECT_URL."
_UNTRUSTED = "Let HEADRACE_CONNECT_CA name a PEM file of the authorities that are trusted."
_DUMP = re.compile(r" PostgresOffsetContext \[.*\]")
_PASSING = (_Busy, httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError)


@dataclass(frozen=True, slots=True)
class ConnectorState:
    """What Connect says of a connector.

    Args:
        connector: ``RUNNING``, ``PAUSED``, ``STOPPED``, ``FAILED``, ``UNASSIGNED``, ``RESTARTING``
            or ``ABSENT``.
        task: The same of its one task; ``ABSENT`` before it exists.
        trace: What the error says, masked; empty when there is none.
        position_lost: Whether the error is that the database no longer has what was to be read next.
        stuck: Whether it ends so at each start, for it was told to read anew what it cannot.
    """

    connector: str
    task: str
    trace: str
    position_lost: bool = False
    stuck: bool = False

    @property
    def running(self) -> bool:
        """Return whether connector and task run."""
        return self.connector == self.task == "RUNNING"

    @property
    def at_rest(self) -> bool:
        """Return whether it reads nothing and will not by itself: it was told so, or has given up."""
        return self.failed or self.connector in ("PAUSED", "STOPPED")

    @property
    def words(self) -> str:
        """Return what is to be told of it, in a few words."""
        return self.trace or f"it is {self.connector.lower()}, its task {self.task.lower()}"

    @property
    def failed(self) -> bool:
        """Return whether either has given up."""
        return "FAILED" in (self.connector, self.task)


class Connect:
    """A client of the Connect workers at ``url``; use it as a context manager.

    Args:
        url: The workers' REST address, see :class:`headrace.config.connect.ConnectAddress`.
        patience: Seconds to keep asking while they are starting or rebalancing.

    Raises:
        StackError: From every call, when Connect does not answer (``CONNECT_UNREACHABLE``), fails at what
            it was asked for (``CONNECT_TROUBLED``), or wants another login (``CONNECT_DENIED``).
        StackError: When what answers is something else (``CONNECT_ELSEWHERE``).
        SourceError: When it refuses (``CONNECTOR_REFUSED``).
        UsageError: When the address is no URL (``CONNECT_URL_INVALID``).
    """

    def __init__(self, url: str, *, patience: float = _PATIENCE_S) -> None:
        address = ConnectAddress.parse(url)
        self._url = mask_url(address.url)
        self._patience = patience
        try:
            given = httpx.URL(address.url)
        except httpx.InvalidURL as error:
            raise UsageError(
                f"Kafka Connect's address {self._url} is no URL: {error}.",
                code="CONNECT_URL_INVALID",
                hint="export HEADRACE_CONNECT_URL=http://HOST:8083",
            ) from None
        # Out of the address, for the client's errors and logs name it whole.
        login = (given.username, given.password) if given.userinfo else None
        bare = given.copy_with(username=None, password=None)
        timeout = _ANSWERS_S if patience >= _PATIENCE_S else _SILENT_S
        self._client = httpx.Client(
            base_url=bare, auth=login, timeout=timeout, trust_env=False, verify=address.verify()
        )

    def __enter__(self) -> Connect:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def create(self, name: str, config: dict[str, str]) -> None:
        """Create the connector, stopped, so that positions left by a namesake can be removed first."""
        body = {"name": name, "config": config, "initial_state": "STOPPED"}
        if self._call("POST", "/connectors", json=body) == _EXISTS:
            # An earlier try got through; if it was that of a process killed since, it says something else.
            self.reconfigure(name, config)

    def reconfigure(self, name: str, config: dict[str, str]) -> None:
        """Give a connector that is there other properties; one that runs starts anew with them."""
        self._call("PUT", f"/connectors/{name}/config", json=config)

    def replace(self, name: str, config: dict[str, str]) -> None:
        """Give a connector other properties; return when it runs with them, if it did before.

        Raises:
            SourceError: When it does not run again in time (``CONNECTOR_NOT_RUNNING``).
        """
        running = self.state(name).running
        if running:
            self.end_task(name)
        self.reconfigure(name, config)
        if running:
            self.resume(name)
            self._until(name, lambda state: state.running or state.failed)

    def state(self, name: str) -> ConnectorState:
        """Return how the connector does."""
        found = self._told(f"/connectors/{name}/status")
        tasks = found.get("tasks") or [{}]
        trace = tasks[0].get("trace") or found.get("connector", {}).get("trace") or ""
        return ConnectorState(
            connector=found.get("connector", {}).get("state", "ABSENT"),
            task=tasks[0].get("state", "ABSENT"),
            trace=_essence(trace),
            position_lost="is no longer available on the server" in trace,
            stuck="Cannot serialize chunk information" in trace,
        )

    def settled(self, name: str) -> ConnectorState:
        """Return how the connector does when it is between two states no more; it waits a while for that.

        One that is stopped is between two: who has it read columns anew, or gives it other properties, stops
        it and starts it again. People let it rest by a pause.
        """
        deadline = time.monotonic() + _SETTLES_S
        while True:
            state = self.state(name)
            ended = state.failed or state.connector in ("PAUSED", "ABSENT")
            if state.running or ended or time.monotonic() > deadline:
                return state
            time.sleep(0.2)

    def config(self, name: str) -> dict[str, str]:
        """Return the connector's properties; empty when there is no such connector."""
        found: dict[str, str] = self._call("GET", f"/connectors/{name}/config", missing={})
        return found

    def plugins(self) -> frozenset[str]:
        """Return the classes that the worker has: of connectors, converters and transformations."""
        found: list[dict[str, str]] = self._call("GET", "/connector-plugins?connectorsOnly=false")
        return frozenset(plugin["class"] for plugin in found)

    def offset(self, name: str) -> dict[str, Any]:
        """Return the source position Connect has stored; empty when there is none."""
        found = self._told(f"/connectors/{name}/offsets")
        stored: list[dict[str, Any]] = found.get("offsets") or [{}]
        return stored[0].get("offset") or {}

    def forget_offsets(self, name: str) -> None:
        """Remove the stored source positions; the connector must be stopped."""
        self._call("DELETE", f"/connectors/{name}/offsets", missing={})

    def pause(self, name: str) -> None:
        """Stop reading, keep the task."""
        self._call("PUT", f"/connectors/{name}/pause", missing={})

    def resume(self, name: str) -> None:
        """Read on."""
        self._call("PUT", f"/connectors/{name}/resume", missing={})

    def stop(self, name: str) -> None:
        """End the task, keep the configuration and the positions."""
        self._call("PUT", f"/connectors/{name}/stop", missing={})

    def halt(self, name: str, *, again: str) -> None:
        """End the task and forget the positions; return when both is done. A connector that is not there is.

        Args:
            name: The connector.
            again: What to run when it does not end in time.

        Raises:
            SourceError: When it does not end in time (``CONNECTOR_NOT_RUNNING``).
        """
        self.stop(name)
        self._until(name, lambda s: s.connector in ("STOPPED", "ABSENT") and s.task == "ABSENT", again)
        self.forget_offsets(name)

    def restart(self, name: str) -> None:
        """Start what has failed again."""
        self._call("POST", f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true", missing={})

    def revive(self, name: str) -> None:
        """Read on, whether it was told to rest or has failed."""
        self.resume(name)
        self.restart(name)

    def start_over(self, name: str) -> None:
        """End the task and start it again, so that it reads the tables' columns anew; return when it runs.

        One that does not run stays as it is.

        Raises:
            SourceError: When it does not run again in time (``CONNECTOR_NOT_RUNNING``).
        """
        if not self.state(name).running:
            return
        self.end_task(name)
        self.resume(name)
        self._until(name, lambda state: state.running or state.failed)

    def end_task(self, name: str) -> None:
        """End the task, keep configuration and positions; return when it has ended.

        Raises:
            SourceError: When it does not end in time (``CONNECTOR_NOT_RUNNING``).
        """
        self.stop(name)
        self._until(name, lambda state: state.connector == "STOPPED" and state.task == "ABSENT")

    def _until(self, name: str, there: Callable[[ConnectorState], bool], again: str = "") -> None:
        deadline = time.monotonic() + _CHANGES_S
        while not there(state := self.state(name)):
            if time.monotonic() > deadline:
                raise SourceError(
                    f"The connector {name} is {state.connector}, its task {state.task}.",
                    code="CONNECTOR_NOT_RUNNING",
                    hint=again or f"headrace source resume {name.removeprefix('headrace_')}",
                )
            time.sleep(0.1)

    def delete(self, name: str) -> None:
        """Remove the connector; idempotent."""
        self._call("DELETE", f"/connectors/{name}", missing={})

    def _told(self, path: str) -> dict[str, Any]:
        """Return what the worker tells; empty only when it knows that there is nothing to be told.

        One that has just started tells nothing of anything until it has read its own topics to their end.
        """
        found: dict[str, Any] = self._call("GET", path, missing={})
        if not found:
            self._call("GET", _HEALTH, missing={})  # older workers do not know it
            found = self._call("GET", path, missing={})
        return found

    def _call(
        self, method: str, path: str, *, json: Any = None, missing: dict[str, Any] | None = None
    ) -> Any:
        patiently = Retrying(
            retry=retry_if_exception_type(_PASSING),
            stop=stop_after_delay(self._patience),
            wait=wait_exponential_jitter(multiplier=0.2, max=2, jitter=0.2),
            reraise=True,
        )
        try:
            return patiently(self._once, method, path, json, missing)
        except (httpx.TransportError, _Busy) as error:
            raise StackError(
                f"Kafka Connect at {self._url} does not answer: {error or type(error).__name__}",
                code="CONNECT_UNREACHABLE",
                hint=_UNTRUSTED if "CERTIFICATE_VERIFY_FAILED" in str(error) else _ABSENT,
            ) from error

    def _once(self, method: str, path: str, json: Any, missing: dict[str, Any] | None) -> Any:
        answer = self._client.request(method, path, json=json)
        if answer.status_code == httpx.codes.NOT_FOUND and not _is_told(answer):
            raise _Busy("it is starting")  # it listens, and knows none of its own addresses yet
        if answer.status_code == httpx.codes.NOT_FOUND and missing is not None:
            return missing
        if answer.status_code == httpx.codes.CONFLICT and "already exists" in answer.text:
            return _EXISTS
        if answer.status_code == httpx.codes.CONFLICT or answer.status_code >= 502:
            raise _Busy(f"it is starting or busy ({answer.status_code})")
        broken = answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR
        if broken and (path == _HEALTH or any(words in answer.text for words in _PASSING_500)):
            raise _Busy("it is starting or busy (500)")
        if broken:
            raise StackError(
                f"Kafka Connect has trouble of its own: {_complaint(answer)}",
                code="CONNECT_TROUBLED",
                hint="Start Kafka Connect anew, as `headrace down` and `headrace up` do with the local one."
                " Then run the same command again.",
            )
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            said = _complaint(answer) or answer.status_code
            raise StackError(
                f"Kafka Connect at {self._url} does not let us in: {said}",
                code="CONNECT_DENIED",
                hint="export HEADRACE_CONNECT_URL=http://USER:PASSWORD@HOST:8083",
            )
        if not answer.is_success:  # nor is a redirect followed: whoever sends us elsewhere gets nothing
            raise SourceError(
                f"Kafka Connect refuses: {_complaint(answer)}",
                code="CONNECTOR_REFUSED",
                hint="Run `headrace source check URL` on the database; details are in Connect's log.",
            )
        try:
            return answer.json() if answer.content else {}
        except ValueError:
            raise StackError(
                f"What answers at {self._url} is not Kafka Connect: it tells no JSON.",
                code="CONNECT_ELSEWHERE",
                hint="export HEADRACE_CONNECT_URL=http://HOST:8083",
            ) from None


def _is_told(answer: httpx.Response) -> bool:
    """Return whether an error is Connect's own word, not that of the server before it knows anything."""
    try:
        return "error_code" in answer.json()
    except (ValueError, TypeError):
        return False


def _complaint(answer: httpx.Response) -> str:
    try:
        message = str(answer.json().get("message", answer.text))
    except ValueError:
        message = answer.text
    return mask_text(" ".join(message.split()))[:600]


def _essence(trace: str) -> str:
    """Return the messages of a Java stack trace without its frames."""
    said = [line.strip() for line in trace.splitlines() if line and not line.startswith(("\t", " "))]
    said = [_DUMP.sub("", line) for line in said]
    return mask_text(" · ".join(line.removeprefix("Caused by: ") for line in said))[:600]
