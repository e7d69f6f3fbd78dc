"""Artefacts are downloaded for real, by Ivy over HTTP, from a repository on loopback."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from headrace.local.artefacts import missing, resolve
from headrace.local.cache import sha256_of
from headrace.model.errors import EnvironmentError_
from tests.support.maven import Repository, repository
from tests.support.patience import WAIT_S

pytestmark = pytest.mark.stack


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """A repository with the Spark jars, and an empty cache that is filled from it."""
    with repository("spark") as served:
        monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HEADRACE_MAVEN_MIRROR", served.url)
        yield served


def closed_port() -> int:
    with socket.socket() as once:
        once.bind(("127.0.0.1", 0))
        return int(once.getsockname()[1])


def test_first_fills_the_cache_then_works_without_a_network(
    maven: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived: dict[str, int] = {}

    def on_progress(name: str, size: int) -> None:
        arrived[name] = arrived.get(name, 0) + size

    files = resolve(["spark"], on_progress)["spark"]
    assert len(maven.fetched) == len(maven.files)
    assert arrived == {path.name: path.stat().st_size for path in files}

    monkeypatch.setenv("HEADRACE_MAVEN_MIRROR", f"http://127.0.0.1:{closed_port()}/")
    assert resolve(["spark"])["spark"] == files

    # A file that was cut and one that was altered are noticed, and only they are fetched again.
    files[0].write_bytes(files[0].read_bytes()[:100])
    files[1].write_bytes(b"\0" + files[1].read_bytes()[1:])
    monkeypatch.setenv("HEADRACE_MAVEN_MIRROR", maven.url)
    maven.fetched.clear()
    assert resolve(["spark"])["spark"] == files
    assert sorted(path.rpartition("/")[2] for path in maven.fetched) == sorted(
        file.name for file in files[:2]
    )
    assert not missing(["spark"], verify=True)


def test_certificates_are_read_once_and_not_among_threads(
    maven: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence of its warnings holds for the whole process: of two threads one would end it early."""
    read: list[bytes] = []
    threads: set[str] = set()
    load = x509.load_der_x509_certificate

    def watched(der: bytes) -> x509.Certificate:
        read.append(der)
        threads.add(threading.current_thread().name)
        return load(der)

    monkeypatch.setattr(x509, "load_der_x509_certificate", watched)
    assert len(resolve(["spark"])["spark"]) > 1
    assert read
    assert len(read) == len(set(read))
    assert threads == {threading.current_thread().name}


def test_no_network_at_the_first_start_names_artefact_and_remedy(
    maven: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_MAVEN_MIRROR", f"http://127.0.0.1:{closed_port()}/")
    with pytest.raises(EnvironmentError_) as caught:
        resolve(["spark"])
    assert caught.value.code == "ARTEFACT_UNAVAILABLE"
    assert "delta-spark_4.2_2.13:4.4.0" in caught.value.message
    assert "does not accept connections" in caught.value.message
    assert "HEADRACE_MAVEN_MIRROR" in caught.value.message
    assert "HEADRACE_CACHE" in caught.value.hint
    assert not maven.fetched


@pytest.mark.deep
def test_a_half_download_is_never_taken(maven: Repository) -> None:
    maven.cut = 1000
    with pytest.raises(EnvironmentError_, match="sha256"):
        resolve(["spark"])
    assert missing(["spark"])
    maven.cut = None
    assert len(resolve(["spark"])["spark"]) == len(maven.files)


@pytest.mark.deep
def test_a_mirror_with_a_password(maven: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    maven.login = "reader:s3cret"
    with pytest.raises(EnvironmentError_, match="Could not download"):
        resolve(["spark"])
    monkeypatch.setenv("HEADRACE_MAVEN_MIRROR", maven.url.replace("http://", "http://reader:s3cret@"))
    assert len(resolve(["spark"])["spark"]) == len(maven.files)


def test_two_at_once_download_once(maven: Repository) -> None:
    code = "from headrace.local.artefacts import resolve; print(*resolve(['spark'])['spark'])"
    both = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    answers = {process.communicate(timeout=WAIT_S)[0] for process in both}
    assert len(answers) == 1
    assert all(len(sha256_of(Path(path))) == 64 for path in answers.pop().split())
    assert len(maven.fetched) == len(maven.files)
