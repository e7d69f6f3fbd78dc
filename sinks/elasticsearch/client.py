"""Talking HTTP to Elasticsearch: bytes out, bytes in, and one kind of error per kind of trouble.

It uses the official client's transport layer directly: bulk bodies go out as they were built, and
answers come back unparsed, so that numbers can be read exactly.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson
from elastic_transport import (
    ApiError,
    ConnectionError,  # noqa: A004
    ConnectionTimeout,
    NodeConfig,
    Serializer,
    TlsError,
    Transport,
    TransportError,
)
from elastic_transport.client_utils import url_to_node_config
from pydantic import ConfigDict, Field, SecretStr

from headrace.config.secrets import mask_url
from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.schema import Column, LogicalType
from sinks.about import ROTATE
from sinks.shadow import ShadowName
from sinks.unheld import UnheldSettings

__all__ = ["BLOCKS", "NO_SHARD", "Client", "ElasticsearchConfig", "Reply", "path"]

BLOCKS = ("cluster_block_exception", "index_closed_exception")
"""Nothing of an index, or of the cluster, may be written until somebody lifts that."""
NO_SHARD = ("no_shard_available_action_exception", "unavailable_shards_exception")
"""A part of an index has no copy that answers."""
_NO_CLUSTER = ("cluster_block_exception", "master_not_discovered_exception")


class ElasticsearchConfig(UnheldSettings):
    """Settings of an Elasticsearch sink.

    Args:
        url: Address of a node, or several separated by commas.
        prefix: What every index name of this sink begins with; lower-case.
        api_key: Encoded API key; or give ``username`` and ``password``.
        ca_certs: File of the certificate authorities to trust.
        verify_certs: False accepts any certificate.
        shards: Primary shards of a new index.
        replicas: Replicas of a new index; None lets it have one as soon as a second node is there.
        refresh_interval: How often new changes are made searchable, searched for or not; see Elasticsearch's
            ``index.refresh_interval``. None leaves it to the cluster: each second while somebody searches,
            and for the first search after a pause, which waits for it. An interval that others give an index
            may be as long, or a minute; a longer one hides what is written.
        tombstone_days: How long a deleted row is remembered against replays of its past.
        chunk_docs: Most operations in one bulk request.
        chunk_bytes: Largest body of one bulk request.
        timeout: Seconds to wait for one answer.
        shadow: See :mod:`sinks.shadow`.
        unheld: Of documents in columns of JSON; see :mod:`sinks.unheld`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    prefix: str = Field(default="", pattern=r"^([a-z0-9][a-z0-9._-]*)?$", max_length=80)
    api_key: SecretStr | None = None
    username: str | None = None
    password: SecretStr | None = None
    ca_certs: str | None = None
    verify_certs: bool = True
    shards: int = Field(default=1, ge=1)
    replicas: int | None = Field(default=None, ge=0)
    refresh_interval: str | None = None
    tombstone_days: int = Field(default=7, ge=1)
    chunk_docs: int = Field(default=2_000, ge=1)
    chunk_bytes: int = Field(default=5_000_000, ge=1_000)
    timeout: float = Field(default=60, gt=0)
    shadow: ShadowName = ""

    @classmethod
    def no_use(cls, column: Column) -> str:
        """Return why a policy changes nothing for a column: only single documents are ever kept beside."""
        if column.type is not LogicalType.JSON:
            return (
                "Elasticsearch takes every value of such a column; columns of json and jsonb take a policy."
            )
        if column.dimensions:
            return (
                "Elasticsearch takes an array of documents whole or not at all. Store the array as one"
                " document, in a column of json or jsonb, which takes a policy; or mirror the table to a"
                " lake or to Redis, which hold it."
            )
        return ""


class Reply(NamedTuple):
    """An answer with a status the caller asked to see."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    def json(self) -> Any:
        """Return the parsed body."""
        return orjson.loads(self.body)


class _Bytes(Serializer):
    mimetype = "application/json"

    def loads(self, data: bytes) -> Any:
        return data

    def dumps(self, data: Any) -> bytes:
        return data if isinstance(data, bytes) else orjson.dumps(data)


def path(*parts: str) -> str:
    """Return a request path, each part quoted."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


class Client:
    """A connection pool to one cluster, opened on first use."""

    def __init__(self, config: ElasticsearchConfig) -> None:
        self._config = config
        self._transport: Transport | None = None
        self._lock = threading.Lock()
        self._headers = {"accept": "application/json", **self._authorization(config)}

    @staticmethod
    def _authorization(config: ElasticsearchConfig) -> dict[str, str]:
        if config.api_key is not None:
            return {"authorization": f"ApiKey {config.api_key.get_secret_value()}"}
        if config.username is not None:
            password = config.password.get_secret_value() if config.password else ""
            return {
                "authorization": "Basic "
                + base64.b64encode(f"{config.username}:{password}".encode()).decode()
            }
        return {}

    def _nodes(self) -> list[NodeConfig]:
        tls: dict[str, Any] = {}
        if not self._config.verify_certs:
            tls = {"verify_certs": False, "ssl_show_warn": False}
        elif self._config.ca_certs is not None:
            tls = {"ca_certs": self._config.ca_certs}
        nodes = [
            url_to_node_config(url.strip(), use_default_ports_for_scheme=True)
            for url in self._config.url.split(",")
        ]
        return [
            node.replace(request_timeout=self._config.timeout, **(tls if node.scheme == "https" else {}))
            for node in nodes
        ]

    def _connected(self) -> Transport:
        with self._lock:
            if self._transport is None:
                self._transport = Transport(
                    self._nodes(),
                    serializers={"application/json": _Bytes(), "application/x-ndjson": _Bytes()},
                    max_retries=1,  # every request may be repeated; a pooled connection may be stale
                    retry_on_status=(),
                    meta_header=False,
                )
            return self._transport

    def request(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        see: tuple[int, ...] = (),
        mimetype: str = "application/json",
    ) -> Reply:
        """Send one request and return the answer if its status is 2xx or in ``see``.

        Args:
            method: HTTP method.
            target: Path with query, quoted.
            body: Bytes to send as they are, or anything orjson takes.
            see: Further statuses the caller deals with.
            mimetype: What ``body`` is.

        Raises:
            SinkUnavailable: When the cluster does not answer or asks for patience.
            SinkError: When it refuses in a way that waiting does not cure.
        """
        headers = self._headers if body is None else {**self._headers, "content-type": mimetype}
        try:
            meta, data = self._connected().perform_request(method, target, body=body, headers=headers)
        except TlsError as error:
            message = f"TLS with Elasticsearch at {mask_url(self._config.url)} fails: {error.message}"
            raise self._error("ES_TLS", message, _encryption(error.message), SinkError) from error
        except (ConnectionError, ConnectionTimeout) as error:
            message = (
                f"Elasticsearch at {mask_url(self._config.url)} does not answer: {type(error).__name__}."
            )
            raise self._error("ES_UNREACHABLE", message, "Is it running, and is the url right?") from error
        except (TransportError, ApiError) as error:
            raise self._error("ES_PROTOCOL", f"Elasticsearch gives no answer to read: {error}", "") from error
        if 200 <= meta.status < 300 or meta.status in see:
            return Reply(meta.status, data or b"", meta.headers)
        raise self.refusal(meta.status, data or b"")

    @staticmethod
    def _error(code: str, message: str, hint: str, kind: type[SinkError] = SinkUnavailable) -> SinkError:
        return kind(message, code=code, hint=hint)

    @classmethod
    def refusal(cls, status: int, body: bytes | Mapping[str, Any]) -> SinkError:
        """Return the error that a refused request, or a refused item of a bulk request, stands for."""
        kind, reason = _reason(body)
        if status == 401:
            hint = (
                f"{ROTATE}--set api_key=env:VARIABLE; or {ROTATE}--set username=… --set password=env:VARIABLE"
            )
            return cls._error(
                "ES_AUTH", f"Elasticsearch does not know these credentials: {reason}", hint, SinkError
            )
        if status == 503 and kind in _NO_CLUSTER:
            hint = "It is starting or has no master; it goes on by itself. Else look at the nodes' logs."
            return cls._error("ES_BUSY", f"Elasticsearch is not ready ({kind}): {reason}", hint)
        if kind in BLOCKS:
            return cls._error(
                "ES_BLOCKED", f"Elasticsearch takes no writes: {reason}", _unblock(kind, reason)
            )
        if kind in NO_SHARD:
            hint = "GET _cluster/allocation/explain says why; it goes on by itself when the shard is back."
            return cls._error("ES_SHARD_UNAVAILABLE", f"A shard is not there ({kind}): {reason}", hint)
        if status == 403:
            hint = "The credentials need monitor, and create_index, manage, read and write on its indexes."
            return cls._error("ES_FORBIDDEN", f"Elasticsearch forbids it: {reason}", hint, SinkError)
        if kind == "index_not_found_exception":
            hint = "Somebody removed or renamed it."
            return cls._error(
                "ES_INDEX_MISSING", f"An index or alias of the sink is gone: {reason}", hint, SinkError
            )
        if status in (408, 413, 429, 502, 503, 504):
            hint = "It is overloaded, or its memory is too small; it goes on by itself."
            return cls._error("ES_BUSY", f"Elasticsearch asks for patience ({status}): {reason}", hint)
        return cls._error("ES_REFUSED", f"Elasticsearch refuses ({status} {kind}): {reason}", "", SinkError)

    def close(self) -> None:
        """Close the connections; a later request opens new ones."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None


def _encryption(said: str) -> str:
    """Return what helps when no encrypted connection comes about."""
    if "WRONG_VERSION_NUMBER" in said:
        return "The server does not encrypt: write http:// in the url."
    if "match" in said:
        return "Write a name of the server in the url that its certificate is for."
    return "Give the authority of the server's certificate, as a PEM file: --set ca_certs=FILE."


def _unblock(kind: str, reason: str) -> str:
    """Return what ends a block."""
    if kind == "index_closed_exception":
        return "Open the index; it goes on by itself."
    if "flood-stage" in reason:
        return "Free disk space; Elasticsearch lifts the block then, and it goes on by itself."
    if "cluster read-only" in reason:
        return "Lift the block of the cluster (the setting cluster.blocks.*); it goes on by itself."
    return "Lift the block of the index (its setting index.blocks.*); it goes on by itself."


def _reason(body: bytes | Mapping[str, Any]) -> tuple[str, str]:
    try:
        parsed = orjson.loads(body) if isinstance(body, bytes) else body
        error = parsed.get("error", parsed)
        if isinstance(error, str):
            return "", error
        if error.get("type") == "search_phase_execution_exception":
            # It only counts the shards; what they said is beneath, or nobody was there to say anything.
            causes = [shard["reason"] for shard in error.get("failed_shards", ())]
            causes += [cause for cause in error.get("root_cause", ()) if cause.get("reason")]
            error = next(
                iter(causes), {"type": "no_shard_available_action_exception", "reason": "all of them"}
            )
        return str(error.get("type", "")), str(error.get("reason", ""))
    except (orjson.JSONDecodeError, AttributeError):
        return "", "no explanation"
