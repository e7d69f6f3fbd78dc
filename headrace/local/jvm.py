"""Options common to the Java servers: small heaps, quick starts, quiet logs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headrace.local.account import Account, give, private
from headrace.local.aot import AotCache
from headrace.local.cache import write_atomically
from headrace.local.home import Home
from headrace.local.java import java_home

__all__ = [
    "aot_cache",
    "class_path",
    "java_command",
    "jvm_options",
    "log4j2_properties",
    "own_log",
    "settings_file",
]


def class_path(jars: Sequence[Path]) -> str:
    """Join jars to a class path."""
    return os.pathsep.join(map(str, jars))


_SHAPE = ("-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError", "-XX:-UsePerfData", "-Djava.awt.headless=true")
_QUICK = "-XX:TieredStopAtLevel=1"
"""Code is compiled once, soon and cheaply. What makes it faster in the long run takes both cores of a small
machine for the first minutes."""


def jvm_options(heap_mib: int, temp: Path, account: Account | None = None) -> list[str]:
    """Return the options every server's JVM gets.

    The serial collector holds fewer threads and tables than the default one and pauses for milliseconds at
    these heap sizes. ``HEADRACE_JIT=full`` has code compiled for the long run.
    """
    private(temp, account)
    return [f"-Xmx{heap_mib}m", *_shape(), f"-Djava.io.tmpdir={temp}"]


def _shape() -> list[str]:
    full = os.environ.get("HEADRACE_JIT", "").lower() == "full"
    return [*_SHAPE, *([] if full else [_QUICK])]


def aot_cache(server: str, heap_mib: int, jars: Sequence[Path]) -> AotCache | None:
    """Return the ahead-of-time cache of a server that runs with these jars and :func:`jvm_options`."""
    return AotCache.of(server, jars, [*_shape(), str(heap_mib)])


def java_command(jars: Sequence[Path], options: Sequence[str], main: str, *arguments: str) -> list[str]:
    """Return the command that runs a main class."""
    java = str(java_home() / "bin" / "java")
    return [java, *options, "-cp", class_path(jars), main, *arguments]


def own_log(home: Home, server: str, account: Account | None) -> Path:
    """Return the log that a server writes itself, in a directory of the account if there is one."""
    if account is not None:
        private(home.logs / server, account)
    return home.log(server)


def settings_file(path: Path, text: str, account: Account | None) -> Path:
    """Write a file of settings that only the server's account may read; return it."""
    private(path.parent, account)
    if path.suffix == ".properties":  # Java reads these as Latin-1
        text = "".join(c if c.isascii() else _java_letter(c) for c in text)
    write_atomically(path, text.encode(), mode=0o600)
    give(path, account)
    return path


def _java_letter(letter: str) -> str:
    units = letter.encode("utf-16-be").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def log4j2_properties(log: Path) -> str:
    """Return a Log4j configuration that keeps at most 2 × 10 MB in ``log``."""
    return f"""\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %-5p %c{{1}} %m%n
appender.file.policies.type = SizeBasedTriggeringPolicy
appender.file.policies.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""
