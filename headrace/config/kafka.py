"""How Kafka is reached: addresses, and a private file of client properties that holds what is secret.

The file is what Java's clients read: ``security.protocol``, ``sasl.mechanism``, ``sasl.jaas.config``,
``ssl.truststore.location`` (PEM) and such. An address names it and never holds a secret, so addresses may be
shown, logged and handed from process to process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from headrace.model.errors import UsageError

__all__ = ["KafkaAddress"]

_SAME = frozenset({"security.protocol", "sasl.mechanism", "ssl.endpoint.identification.algorithm"})
_OTHERWISE = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.keystore.location": "ssl.keystore.location",
    "ssl.keystore.password": "ssl.keystore.password",
    "ssl.key.password": "ssl.key.password",
}
_JAVA_ONLY = frozenset({"ssl.truststore.type", "ssl.keystore.type", "sasl.jaas.config"})
_JAAS = re.compile(r'\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|([^\s;]+))')


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """Brokers, and what a client needs to be let in.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        properties: The file of client properties; None where nothing but the address is needed.
    """

    bootstrap: str
    properties: Path | None = None

    @classmethod
    def parse(cls, text: str) -> KafkaAddress:
        """Return the address that ``str`` made a text of: ``host:port`` or ``host:port;path``."""
        bootstrap, _, path = text.partition(";")
        return cls(bootstrap, Path(path) if path else None)

    def __str__(self) -> str:
        return f"{self.bootstrap};{self.properties}" if self.properties else self.bootstrap

    def librdkafka(self) -> dict[str, str]:
        """Return the settings of a client that is built on librdkafka, secrets included.

        Raises:
            UsageError: When the file cannot be read, or has a property that such a client does not know
                (``KAFKA_PROPERTIES_INVALID``).
        """
        found = {"bootstrap.servers": self.bootstrap}
        for name, value in self._known().items():
            if name in _SAME:
                found[name] = value
            elif name in _OTHERWISE:
                found[_OTHERWISE[name]] = value
            elif name == "sasl.jaas.config":
                for key, *spellings in _JAAS.findall(value):
                    found[f"sasl.{key}"] = re.sub(r"\\(.)", r"\1", next(filter(None, spellings), ""))
            elif name not in _JAVA_ONLY:
                raise self._invalid(f"it has {name}, which is not known here")
        return found

    def java(self) -> dict[str, str]:
        """Return the same for a Java client, which takes every property from the file by itself.

        Raises:
            UsageError: When the file cannot be read (``KAFKA_PROPERTIES_INVALID``).
        """
        known = {name: f"${{file:{self.properties}:{name}}}" for name in self._known()}
        providers = {
            "config.providers": "file",
            "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        }
        return {"bootstrap.servers": self.bootstrap, **(providers if known else {}), **known}

    def spark(self) -> dict[str, str]:
        """Return :meth:`java` as options of Spark's Kafka source."""
        return {f"kafka.{name}": value for name, value in self.java().items()}

    def _known(self) -> dict[str, str]:
        if self.properties is None:
            return {}
        try:
            lines = self.properties.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise self._invalid(error.strerror or type(error).__name__) from None
        pairs = (line.partition("=") for line in lines if line.strip() and line.lstrip()[0] not in "#!")
        return {name.strip(): value.strip() for name, _, value in pairs}

    def _invalid(self, why: str) -> UsageError:
        return UsageError(
            f"Kafka's client properties in {self.properties} cannot be used: {why}.",
            code="KAFKA_PROPERTIES_INVALID",
            hint="Known: " + ", ".join(sorted(_SAME | _OTHERWISE.keys() | _JAVA_ONLY)) + ".",
        )
