"""How Kafka is reached: one address, one private file, the words of two client libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config.kafka import KafkaAddress
from headrace.model.errors import UsageError

CANARY = 'c4n\\"ary'


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(
        "# as Java's clients read it\n"
        "security.protocol=SASL_SSL\nsasl.mechanism = SCRAM-SHA-512\nssl.truststore.location=/ca.pem\n"
        "ssl.truststore.type=PEM\n"
        f'sasl.jaas.config=org.x.ScramLoginModule required username="me" password="{CANARY}";\n'
    )
    return path


def test_an_address_is_its_text_and_back() -> None:
    for text in ("a:1,b:2", "a:1,b:2;/etc/kafka client.properties"):
        assert str(KafkaAddress.parse(text)) == text


def test_nothing_but_the_address_is_needed_where_there_is_no_file() -> None:
    plain = KafkaAddress.parse("a:1")
    assert plain.librdkafka() == plain.java() == {"bootstrap.servers": "a:1"}


def test_librdkafka_is_told_in_its_own_words(properties: Path) -> None:
    assert KafkaAddress("a:1", properties).librdkafka() == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.ca.location": "/ca.pem",
        "sasl.username": "me",
        "sasl.password": 'c4n"ary',
    }


def test_what_spark_is_told_holds_no_secret(properties: Path) -> None:
    options = KafkaAddress("a:1", properties).spark()
    assert "c4n" not in str(options)
    assert options["kafka.sasl.jaas.config"] == f"${{file:{properties}:sasl.jaas.config}}"
    assert options["kafka.config.providers"] == "file"


@pytest.mark.parametrize("text", [None, "sasl.kerberos.service.name=kafka\n"])
def test_a_file_that_cannot_be_used_is_told_by_name(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "p"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError) as caught:
        KafkaAddress("a:1", path).librdkafka()
    assert caught.value.code == "KAFKA_PROPERTIES_INVALID"
