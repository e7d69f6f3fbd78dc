"""The lock file and the cache: only the right content is ever taken for an artefact."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from headrace.local import artefacts
from headrace.local.cache import Cache, write_atomically
from headrace.local.lockfile import Artefact, Coordinate, dump, load
from headrace.local.unpack import unpacked

CONTENT = b"the one right content"


def artefact(content: bytes = CONTENT) -> Artefact:
    digest = hashlib.sha256(content).hexdigest()
    return Artefact("g", Coordinate("org.example", "thing", "1.0"), digest, len(content))


def arrived(tmp_path: Path, content: bytes) -> Path:
    file = tmp_path / "download"
    file.write_bytes(content)
    return file


@pytest.mark.parametrize(
    ("text", "filename"),
    [
        ("a.b:c:1", "c-1.jar"),
        ("a.b:c_2.13:1.0-x:zip", "c_2.13-1.0-x.zip"),
        ("a:c:1:tar.gz:plugin", "c-1-plugin.tar.gz"),
    ],
)
def test_coordinate_round_trip(text: str, filename: str) -> None:
    coordinate = Coordinate.parse(text)
    assert coordinate.filename == filename
    assert str(coordinate) == text


@pytest.mark.parametrize("text", ["", "a:b", "a::1", "a:b:c:d:e:f"])
def test_coordinate_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="not a Maven coordinate"):
        Coordinate.parse(text)


def test_lock_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    items = [artefact(), Artefact("g", Coordinate("a", "b", "1", "zip"), "0" * 64, 7, "linux-amd64")]
    dump(items, path)
    assert sorted(load(path), key=str) == sorted(items, key=str)


def test_lock_names_the_line_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.write_text("# fine\ng a:b:1 tooshort 5\n")
    with pytest.raises(ValueError, match=r"a\.lock:2"):
        load(path)


def test_shipped_lock_covers_every_platform_and_has_no_file_twice() -> None:
    every = load()
    assert {item.group for item in every} == {
        "connect",
        "debezium",
        "elasticsearch",
        "kafka",
        "postgres",
        "spark",
    }
    assert len({item.platform for item in every if item.group == "postgres"}) == 4
    coordinates = [(item.group, item.coordinate) for item in every]
    assert len(coordinates) == len(set(coordinates))
    with pytest.raises(ValueError, match="nonsense"):
        artefacts.locked(["nonsense"])


def test_broker_and_connect_share_one_class_path() -> None:
    names = [
        (item.coordinate.organisation, item.coordinate.name)
        for item in load()
        if item.group in ("kafka", "connect")
    ]
    assert len(names) == len(set(names)), "a module in two versions on one class path"


def test_cache_admits_the_right_content_only(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    item = artefact()
    assert not cache.has(item)
    assert not cache.admit(item, arrived(tmp_path, CONTENT[:-3]))
    assert not cache.admit(item, arrived(tmp_path, CONTENT[:-1] + b"X"))
    assert not cache.has(item)
    assert cache.admit(item, arrived(tmp_path, CONTENT))
    assert cache.has(item)
    assert cache.path(item).read_bytes() == CONTENT


@pytest.mark.parametrize("damage", [CONTENT[:5], CONTENT.upper(), b""])
def test_cache_notices_damage(tmp_path: Path, damage: bytes) -> None:
    cache = Cache(tmp_path / "cache")
    item = artefact()
    cache.admit(item, arrived(tmp_path, CONTENT))
    cache.path(item).write_bytes(damage)
    assert not cache.has(item)


def test_damage_behind_an_unchanged_time_is_found_when_asked(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    item = artefact()
    cache.admit(item, arrived(tmp_path, CONTENT))
    path = cache.path(item)
    stat = path.stat()
    path.write_bytes(CONTENT.upper())
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert cache.has(item)
    assert not cache.has(item, full=True)


def test_a_cache_copied_from_elsewhere_is_hashed_once(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    item = artefact()
    path = cache.path(item)
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    assert cache.has(item)
    assert path.with_name(f"{path.name}.seen").is_file()


def test_cache_lock_lets_one_in_at_a_time(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    inside: list[int] = []
    most = 0

    def work() -> None:
        nonlocal most
        for _ in range(20):
            with Cache(tmp_path).locked():
                inside.append(1)
                most = max(most, len(inside))
                inside.pop()

    with cache.locked():
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert not inside
    for thread in threads:
        thread.join()
    assert most == 1


def test_write_atomically_leaves_no_trace_of_a_failure(tmp_path: Path) -> None:
    target = tmp_path / "file"
    write_atomically(target, b"old")
    with pytest.raises(TypeError):
        write_atomically(target, "no bytes")  # type: ignore[arg-type]
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_damaged_unpacked_archive_is_unpacked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    archive = tmp_path / "0123" / "a.zip"
    archive.parent.mkdir()
    archive.touch()
    times = []

    def extract(_: Path, target: Path) -> None:
        times.append(1)
        (target / "lib").mkdir()
        (target / "lib" / "x.jar").write_bytes(CONTENT)

    first = unpacked(archive, extract)
    assert unpacked(archive, extract) == first
    assert len(times) == 1
    (first / "lib" / "x.jar").write_bytes(CONTENT[:4])
    assert unpacked(archive, extract) == first
    assert (first / "lib" / "x.jar").read_bytes() == CONTENT
    assert len(times) == 2
    assert [path.name for path in first.parent.iterdir()] == [first.name]
