"""The converter that keeps records within Kafka's limit, compiled once and kept in the cache.

Its source is part of the project. The compiler is Janino, which PySpark brings along, so no JDK is needed.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import connectors
from headrace.local.cache import cache_root, write_atomically
from headrace.local.ivy import spark_jars_dir
from headrace.local.java import java_home
from headrace.model.errors import EnvironmentError_

__all__ = ["converter_jar"]

_SOURCE = Path(connectors.__file__).parent / "java" / "BoundedJsonConverter.java"
_CLASS = "headrace.connect.BoundedJsonConverter"
_SERVICE = "META-INF/services/org.apache.kafka.connect.storage.Converter"
_COMPILERS = ("janino-*.jar", "commons-compiler-*.jar")
_MAIN = "org.codehaus.commons.compiler.samples.CompilerDemo"
_FOREVER = (2026, 1, 1, 0, 0, 0)
"""The date of everything in the jar, so that equal sources give equal jars."""


def converter_jar(jars: Sequence[Path]) -> Path:
    """Return the jar for the worker's class path; compiled when the cache does not have it yet (1 s).

    Args:
        jars: The worker's own jars.

    Raises:
        EnvironmentError_: ``CONVERTER_UNBUILT``: with the compiler's own words.
    """
    mark = hashlib.sha256(_SOURCE.read_bytes())
    mark.update(" ".join(sorted(path.name for path in jars)).encode())
    target = cache_root() / "built" / f"headrace-connect-{mark.hexdigest()[:16]}.jar"
    if not target.exists():
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work)
            _compile(folder / "classes", jars)
            packed = folder / "packed.jar"
            _pack(folder / "classes", packed)
            write_atomically(target, packed.read_bytes())
    return target


def _compile(target: Path, jars: Sequence[Path]) -> None:
    target.mkdir()
    compilers = [next(spark_jars_dir().glob(name)) for name in _COMPILERS]
    command = [str(java_home() / "bin" / "java"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m"]
    command += ["-cp", ":".join(map(str, compilers)), _MAIN, "-d", str(target)]
    command += ["-classpath", ":".join(map(str, jars)), str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not list(target.rglob("*.class")):
        raise EnvironmentError_(
            f"The converter for Kafka Connect cannot be compiled: {(done.stderr or done.stdout)[-400:]}",
            code="CONVERTER_UNBUILT",
            hint="Remove the environment with `make distclean` and start again.",
        )


def _pack(classes: Path, jar: Path) -> None:
    with zipfile.ZipFile(jar, "w") as archive:
        for path in sorted(classes.rglob("*.class")):
            name = str(path.relative_to(classes))
            archive.writestr(zipfile.ZipInfo(name, _FOREVER), path.read_bytes())
        archive.writestr(zipfile.ZipInfo(_SERVICE, _FOREVER), f"{_CLASS}\n")
