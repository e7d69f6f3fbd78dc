"""Where artefacts are downloaded from: Ivy's own default, or the mirror this machine's user has set.

Asked in this order, the first that is set wins:

1. ``HEADRACE_IVY_SETTINGS``: path of an ``ivysettings.xml``, used as it is;
2. ``HEADRACE_MAVEN_MIRROR``: URL of a Maven repository;
3. a ``<mirror>`` of ``central`` in ``~/.m2/settings.xml``, with its ``<server>`` credentials.

Proxies come from ``http_proxy``, ``https_proxy`` and ``no_proxy``.
"""

from __future__ import annotations

import os
import re
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from headrace.model.errors import UsageError

__all__ = ["Mirror", "find_mirror", "proxy_properties", "settings_xml"]


@dataclass(frozen=True, slots=True)
class Mirror:
    """A repository to use in place of the default one.

    Attributes:
        origin: What set it, for messages: a variable's or a file's name.
        url: Root of a Maven repository; empty when ``settings`` is given.
        settings: A complete Ivy settings file of the user's.
        username: Name to log in with, or empty.
        password: Its password, or empty.
    """

    origin: str
    url: str = ""
    settings: Path | None = None
    username: str = ""
    password: str = ""


def _mirrors_central(pattern: str) -> bool:
    """Say whether Maven's ``mirrorOf`` expression covers the repository called ``central``."""
    terms = [term.strip() for term in pattern.split(",")]
    if "!central" in terms:
        return False
    return any(term in ("*", "central", "external:*") for term in terms)


def _expand(text: str) -> str:
    return re.sub(r"\$\{env\.(\w+)\}", lambda found: os.environ.get(found.group(1), ""), text.strip())


def _from_maven(path: Path) -> Mirror | None:
    """Read the mirror of ``central`` from a Maven settings file, if there is one."""
    try:
        root = ET.fromstring(path.read_bytes())  # noqa: S314 - the user's own file
    except OSError:
        return None
    except ET.ParseError as error:
        raise UsageError(
            f"{path} is not well-formed XML: {error}.",
            code="MIRROR_SETTINGS",
            hint="Repair the file or set HEADRACE_MAVEN_MIRROR.",
        ) from error
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    servers = {_expand(s.findtext("id", "")): s for s in root.iterfind("servers/server")}
    for mirror in root.iterfind("mirrors/mirror"):
        if not _mirrors_central(mirror.findtext("mirrorOf", "")):
            continue
        url = _expand(mirror.findtext("url", ""))
        server = servers.get(_expand(mirror.findtext("id", "")))
        username = _expand(server.findtext("username", "")) if server is not None else ""
        password = _expand(server.findtext("password", "")) if server is not None else ""
        return Mirror(str(path), url, username=username, password=password)
    return None


def find_mirror(maven_settings: Path | None = None) -> Mirror | None:
    """Return the mirror the user has set, or None for Ivy's own default repository.

    Raises:
        UsageError: ``MIRROR_SETTINGS``: a named settings file is missing or malformed, or a URL is of another
            kind than http, https or file.
    """
    named = os.environ.get("HEADRACE_IVY_SETTINGS")
    if named:
        path = Path(named).expanduser()
        if not path.is_file():
            raise UsageError(
                f"HEADRACE_IVY_SETTINGS names {path}, which is no file.",
                code="MIRROR_SETTINGS",
                hint="Give the path of an ivysettings.xml, or unset the variable.",
            )
        return Mirror("HEADRACE_IVY_SETTINGS", settings=path)
    url = os.environ.get("HEADRACE_MAVEN_MIRROR", "").strip()
    mirror = (
        _with_userinfo(Mirror("HEADRACE_MAVEN_MIRROR", url))
        if url
        else _from_maven(maven_settings or Path.home() / ".m2" / "settings.xml")
    )
    if mirror is not None and urllib.parse.urlsplit(mirror.url).scheme not in ("http", "https", "file"):
        raise UsageError(
            f"The Maven mirror set in {mirror.origin} is no http, https or file URL.",
            code="MIRROR_SETTINGS",
            hint="Give the root of a Maven repository, e.g. https://mirror.example.com/repository/central.",
        )
    return mirror


def _with_userinfo(mirror: Mirror) -> Mirror:
    """Move ``user:password@`` out of the URL, where Java would not understand it."""
    parts = urllib.parse.urlsplit(mirror.url)
    if not parts.username:
        return mirror
    host = parts.netloc.rpartition("@")[2]
    unquote = urllib.parse.unquote
    return Mirror(
        mirror.origin,
        urllib.parse.urlunsplit(parts._replace(netloc=host)),
        username=unquote(parts.username),
        password=unquote(parts.password or ""),
    )


def settings_xml(mirror: Mirror | None, *, poms: bool, realm: str = "") -> str:
    """Return Ivy settings for a mirror, or for Ivy's default repository.

    Args:
        mirror: What :func:`find_mirror` returned, without a settings file of its own.
        realm: What the repository calls the part that asks for the mirror's password; Ivy wants it named.
        poms: Whether to read POMs; a locked download needs none, and asks half as many questions.
    """
    root = f" root={quoteattr(mirror.url.rstrip('/') + '/')}" if mirror else ""
    credentials = ""
    if mirror and mirror.username:
        host = urllib.parse.urlsplit(mirror.url).hostname or ""
        credentials = (
            f"  <credentials host={quoteattr(host)} realm={quoteattr(realm)}"
            f" username={quoteattr(mirror.username)} passwd={quoteattr(mirror.password)}/>\n"
        )
    use_poms = str(poms).lower()
    return (
        "<ivysettings>\n"
        f"{credentials}"
        '  <settings defaultResolver="public"/>\n'
        "  <resolvers>\n"
        '    <ibiblio name="public" m2compatible="true" useMavenMetadata="false"'
        f' usepoms="{use_poms}"{root}/>\n'
        "  </resolvers>\n"
        "</ivysettings>\n"
    )


def proxy_properties() -> list[str]:
    """Return the ``-D`` options that tell Java of this environment's proxies; credentials are left out."""
    properties = []
    proxies = urllib.request.getproxies()
    for scheme in ("http", "https"):
        proxy = proxies.get(scheme)
        if not proxy:
            continue
        parts = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        if parts.hostname:
            properties.append(f"-D{scheme}.proxyHost={parts.hostname}")
            properties.append(f"-D{scheme}.proxyPort={parts.port or (443 if scheme == 'https' else 80)}")
    excluded = [host.strip() for host in proxies.get("no", "").split(",") if host.strip()]
    if properties and excluded:
        # Java joins with | and writes a domain suffix as *.example.com.
        patterns = [f"*{host}" if host.startswith(".") else host for host in excluded]
        properties.append(f"-Dhttp.nonProxyHosts={'|'.join(patterns)}")
    return properties
