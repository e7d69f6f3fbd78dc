"""A user's own mirror and proxy settings reach Ivy and Java."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from headrace.local.mirrors import Mirror, find_mirror, proxy_properties, settings_xml
from headrace.model.errors import UsageError

SETTINGS = """<?xml version="1.0"?>
<settings xmlns="http://example.org/maven/SETTINGS/1.2.0">
  <servers><server><id>corp</id><username>u&amp;1</username><password>${{env.TOKEN}}</password></server></servers>
  <mirrors>
    <mirror><id>other</id><mirrorOf>jboss</mirrorOf><url>https://no.example.com/</url></mirror>
    <mirror><id>corp</id><mirrorOf>{of}</mirrorOf><url>https://mirror.example.com/all</url></mirror>
  </mirrors>
</settings>
"""


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["HEADRACE_IVY_SETTINGS", "HEADRACE_MAVEN_MIRROR"]
    names += [f"{scheme}_proxy" for scheme in ("http", "https", "no", "all")]
    for name in names:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def maven(tmp_path: Path, of: str) -> Path:
    path = tmp_path / "settings.xml"
    path.write_text(SETTINGS.format(of=of))
    return path


def test_nothing_set(tmp_path: Path) -> None:
    assert find_mirror(tmp_path / "settings.xml") is None
    assert "root=" not in settings_xml(None, poms=False)


@pytest.mark.parametrize("of", ["*", "central", "external:*", "jboss, central", "*,!jboss"])
def test_maven_mirror_of_central(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    monkeypatch.setenv("TOKEN", 's3"cret')
    mirror = find_mirror(maven(tmp_path, of))
    assert mirror is not None
    assert (mirror.url, mirror.username, mirror.password) == (
        "https://mirror.example.com/all",
        "u&1",
        's3"cret',
    )
    tree = ET.fromstring(settings_xml(mirror, poms=False))  # noqa: S314
    resolver = tree.find("resolvers/ibiblio")
    credentials = tree.find("credentials")
    assert resolver is not None
    assert credentials is not None
    assert resolver.get("root") == "https://mirror.example.com/all/"
    assert credentials.get("passwd") == 's3"cret'


@pytest.mark.parametrize("of", ["jboss", "*,!central", "external:jboss"])
def test_maven_mirror_of_something_else(tmp_path: Path, of: str) -> None:
    assert find_mirror(maven(tmp_path, of)) is None


def test_variable_wins_over_maven_and_hides_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_MAVEN_MIRROR", "https://me:p%40ss@mirror.example.com:8443/m2")
    mirror = find_mirror(maven(tmp_path, "*"))
    assert mirror == Mirror(
        "HEADRACE_MAVEN_MIRROR", "https://mirror.example.com:8443/m2", username="me", password="p@ss"
    )


def test_ivy_settings_win_over_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "ivysettings.xml"
    own.write_text("<ivysettings/>")
    monkeypatch.setenv("HEADRACE_IVY_SETTINGS", str(own))
    monkeypatch.setenv("HEADRACE_MAVEN_MIRROR", "https://mirror.example.com")
    mirror = find_mirror()
    assert mirror is not None
    assert mirror.settings == own


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HEADRACE_IVY_SETTINGS", "/does/not/exist.xml"),
        ("HEADRACE_MAVEN_MIRROR", "mirror.example.com"),
        ("HEADRACE_MAVEN_MIRROR", "ftp://mirror.example.com"),
    ],
)
def test_wrong_settings_are_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError) as caught:
        find_mirror()
    assert caught.value.code == "MIRROR_SETTINGS"
    assert name in caught.value.message


def test_malformed_maven_settings_are_named(tmp_path: Path) -> None:
    path = tmp_path / "settings.xml"
    path.write_text("<settings>")
    with pytest.raises(UsageError, match=r"settings\.xml"):
        find_mirror(path)


def test_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example.com:3128")
    monkeypatch.setenv("no_proxy", "localhost,.example.org")
    assert proxy_properties() == [
        "-Dhttps.proxyHost=proxy.example.com",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|*.example.org",
    ]


def test_no_proxies() -> None:
    assert proxy_properties() == []
