"""Downloads through the Ivy that comes inside PySpark's own jars: one more tool the user need not install."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

import httpx

from headrace.local.java import java_home
from headrace.local.lockfile import Coordinate
from headrace.local.mirrors import Mirror, proxy_properties, settings_xml
from headrace.local.truststore import PASSWORD, java_truststore
from headrace.model.errors import EnvironmentError_

__all__ = ["Ivy", "spark_jars_dir"]


def spark_jars_dir() -> Path:
    """Return the directory of the jars inside the installed PySpark.

    Raises:
        EnvironmentError_: ``PYSPARK_MISSING``.
    """
    # Found, not imported: importing it costs half a second and belongs to the rooms that run Spark.
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EnvironmentError_(
            "PySpark is not installed in this Python.",
            code="PYSPARK_MISSING",
            hint="Install headrace with its dependencies, e.g. `make up` in a clone.",
        )
    return Path(spec.origin).parent / "jars"


def _ivy_xml(coordinates: Iterable[Coordinate], *, transitive: bool) -> str:
    """Return an Ivy module that depends on exactly these files."""
    modules: dict[tuple[str, str, str], list[Coordinate]] = {}
    for item in coordinates:
        modules.setdefault((item.organisation, item.name, item.version), []).append(item)
    lines = [
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">',
        '  <info organisation="headrace" module="stack" revision="1"/>',
        '  <configurations><conf name="default"/></configurations>',
        "  <dependencies>",
    ]
    for (organisation, name, version), items in modules.items():
        to = "default" if transitive else "*"
        lines.append(
            f"    <dependency org={quoteattr(organisation)} name={quoteattr(name)} rev={quoteattr(version)}"
            f' conf="default-&gt;{to}" transitive="{str(transitive).lower()}">'
        )
        for item in [] if transitive else items:
            classifier = f" m:classifier={quoteattr(item.classifier)}" if item.classifier else ""
            lines.append(
                f"      <artifact name={quoteattr(name)} type={quoteattr(item.extension)}"
                f" ext={quoteattr(item.extension)}{classifier}/>"
            )
        lines.append("    </dependency>")
    lines += ["  </dependencies>", "</ivy-module>"]
    return "\n".join(lines) + "\n"


def _realm(mirror: Mirror | None) -> str:
    """Ask a repository with a password for the realm of it; empty if it does not say."""
    if mirror is None or not mirror.username:
        return ""
    try:
        answer = httpx.get(mirror.url, timeout=30.0, follow_redirects=True)
    except httpx.HTTPError:
        # Ivy will meet the same trouble, and its words are the ones that are told.
        return ""
    found = re.search(r'realm="([^"]*)"', answer.headers.get("www-authenticate", ""), re.IGNORECASE)
    return found.group(1) if found else ""


@dataclass(frozen=True, slots=True)
class Ivy:
    """One configured Ivy; ``work`` holds its settings, cache and results and may be deleted afterwards.

    Attributes:
        work: Where it works.
        mirror: The repository to ask first.
        poms: Whether dependencies' descriptions are read.
        truststore: The authorities its Java trusts; made where the object is, so make that outside threads.
    """

    work: Path
    mirror: Mirror | None
    poms: bool = False
    truststore: Path | None = field(default_factory=java_truststore)

    def retrieve(
        self,
        coordinates: Sequence[Coordinate],
        *,
        transitive: bool = False,
        on_line: Callable[[str], None] | None = None,
    ) -> Path:
        """Download into a directory as ``organisation/name-version[-classifier].ext``.

        Returns:
            That directory; what could not be had is missing in it.
        """
        target = self.work / "files"
        ivy_xml = self.work / "ivy.xml"
        ivy_xml.write_text(_ivy_xml(coordinates, transitive=transitive), encoding="utf-8")
        settings = self.mirror.settings if self.mirror else None
        if settings is None:
            settings = self.work / "ivysettings.xml"
            settings.touch(mode=0o600)
            settings.write_text(
                settings_xml(self.mirror, poms=self.poms, realm=_realm(self.mirror)), encoding="utf-8"
            )
        command = [str(java_home() / "bin" / "java")]
        command += ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m"]
        command += [f"-Duser.home={self.work}", "-Djava.net.useSystemProxies=false", *proxy_properties()]
        if self.truststore is not None:
            command += [
                f"-Djavax.net.ssl.trustStore={self.truststore}",
                "-Djavax.net.ssl.trustStoreType=PKCS12",
                f"-Djavax.net.ssl.trustStorePassword={PASSWORD}",
            ]
        command += ["-cp", f"{spark_jars_dir()}/*", "org.apache.ivy.Main"]
        command += ["-settings", str(settings), "-cache", str(self.work / "cache"), "-ivy", str(ivy_xml)]
        command += ["-confs", "default"]
        pattern = "[organisation]/[artifact]-[revision](-[classifier]).[ext]"
        command += ["-retrieve", str(target / pattern)]
        with (self.work / "ivy.log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
            )
            with process:
                for line in process.stdout or ():
                    log.write(line)
                    if on_line is not None:
                        on_line(line.rstrip())
        return target
