"""Kafka Connect's REST interface, as far as one connector per source needs it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential_jitter

from headrace.config.secrets import mask_text
from headrace.model.errors import SourceError, StackError

__all__ = ["Connect", "ConnectorState"]


class _Busy(Exception):
    """Connect is rebalancing or starting; the same request works soon."""


_EXISTS = {"exists": True}
_CHANGES_S = 60.0
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
    """

    connector: str
    task: str
    trace: str
    position_lost: bool = False

    @property
    def running(self) -> bool:
        """Return whether connector and task run."""
        return self.connector == self.task == "RUNNING"

    @property
    def failed(self) -> bool:
        """Return whether either has given up."""
        return "FAILED" in (self.connector, self.task)


class Connect:
    """A client of the Connect workers at ``url``; use it as a context manager.

    Args:
        url: The workers' REST address.
        patience: Seconds to keep asking while they are starting or rebalancing.

    Raises:
        StackError: From every call, when Connect does not answer (``CONNECT_UNREACHABLE``).
        SourceError: When it refuses (``CONNECTOR_REFUSED``).
    """

    def __init__(self, url: str, *, patience: float = 30.0) -> None:
        self._url = url.rstrip("/")
        self._patience = patience
        secure = self._url.startswith("https:")  # else loading the authorities would take most of a call
        self._client = httpx.Client(base_url=self._url, timeout=60, trust_env=False, verify=secure)

    def __enter__(self) -> Connect:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def create(self, name: str, config: dict[str, str]) -> None:
        """Create the connector, stopped, so that positions left by a namesake can be removed first."""
        body = {"name": name, "config": config, "initial_state": "STOPPED"}
        if self._call("POST", "/connectors", json=body) == _EXISTS:
            # An earlier try got through; if it was that of a process killed since, it says something else.
            self._call("PUT", f"/connectors/{name}/config", json=config)

    def state(self, name: str) -> ConnectorState:
        """Return how the connector does."""
        found = self._call("GET", f"/connectors/{name}/status", missing={})
        tasks = found.get("tasks") or [{}]
        trace = tasks[0].get("trace") or found.get("connector", {}).get("trace") or ""
        return ConnectorState(
            connector=found.get("connector", {}).get("state", "ABSENT"),
            task=tasks[0].get("state", "ABSENT"),
            trace=_essence(trace),
            position_lost="is no longer available on the server" in trace,
        )

    def config(self, name: str) -> dict[str, str]:
        """Return the connector's properties; empty when there is no such connector."""
        found: dict[str, str] = self._call("GET", f"/connectors/{name}/config", missing={})
        return found

    def offset(self, name: str) -> dict[str, Any]:
        """Return the source position Connect has stored; empty when there is none."""
        found = self._call("GET", f"/connectors/{name}/offsets", missing={})
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

    def restart(self, name: str) -> None:
        """Start what has failed again."""
        self._call("POST", f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true", missing={})

    def start_over(self, name: str) -> None:
        """End the task and start it again, so that it reads the tables' columns anew; return when it runs.

        One that does not run stays as it is.

        Raises:
            SourceError: When it does not run again in time (``CONNECTOR_NOT_RUNNING``).
        """
        if not self.state(name).running:
            return
        self.stop(name)
        self._until(name, lambda state: state.connector == "STOPPED" and state.task == "ABSENT")
        self.resume(name)
        self._until(name, lambda state: state.running or state.failed)

    def _until(self, name: str, there: Callable[[ConnectorState], bool]) -> None:
        deadline = time.monotonic() + _CHANGES_S
        while not there(state := self.state(name)):
            if time.monotonic() > deadline:
                raise SourceError(
                    f"The connector {name} is {state.connector}, its task {state.task}.",
                    code="CONNECTOR_NOT_RUNNING",
                    hint="headrace lag; then headrace source resume.",
                )
            time.sleep(0.1)

    def delete(self, name: str) -> None:
        """Remove the connector; idempotent."""
        self._call("DELETE", f"/connectors/{name}", missing={})

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
                hint="Start it with `headrace up`; its log is connect.log in the data directory.",
            ) from error

    def _once(self, method: str, path: str, json: Any, missing: dict[str, Any] | None) -> Any:
        answer = self._client.request(method, path, json=json)
        if answer.status_code == httpx.codes.NOT_FOUND and missing is not None:
            return missing
        if answer.status_code == httpx.codes.CONFLICT and "already exists" in answer.text:
            return _EXISTS
        if answer.status_code == httpx.codes.CONFLICT or answer.status_code >= 502:
            raise _Busy(f"it is busy ({answer.status_code})")
        if answer.is_error:
            raise SourceError(
                f"Kafka Connect refuses: {_complaint(answer)}",
                code="CONNECTOR_REFUSED",
                hint="Run `headrace source check` on the database; details are in Connect's log.",
            )
        return answer.json() if answer.content else {}


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
