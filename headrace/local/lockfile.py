"""The lock file: which files of Maven Central the local stack is made of, and their sha256.

One artefact a line: group, coordinate (``organisation:name:version[:extension[:classifier]]``), sha256,
size in bytes, and for files that exist once per platform that platform's name.
``python -m headrace.local.relock`` writes it; nothing else does.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headrace.model.errors import EnvironmentError_

__all__ = ["ANY_PLATFORM", "LOCK_PATH", "Artefact", "Coordinate", "dump", "load", "this_platform"]

LOCK_PATH = Path(__file__).with_name("artefacts.lock")
ANY_PLATFORM = "any"


@dataclass(frozen=True, slots=True, order=True)
class Coordinate:
    """A file in a Maven repository."""

    organisation: str
    name: str
    version: str
    extension: str = "jar"
    classifier: str = ""

    @classmethod
    def parse(cls, text: str) -> Coordinate:
        """Read ``organisation:name:version[:extension[:classifier]]``.

        Raises:
            ValueError: The text has fewer than three or more than five parts.
        """
        parts = text.split(":")
        if not 3 <= len(parts) <= 5 or not all(parts[:3]):
            raise ValueError(f"not a Maven coordinate: {text!r}")
        return cls(*parts)

    @property
    def filename(self) -> str:
        """The file's name in every Maven repository."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{classifier}.{self.extension}"

    def __str__(self) -> str:
        text = f"{self.organisation}:{self.name}:{self.version}"
        if self.classifier:
            return f"{text}:{self.extension}:{self.classifier}"
        return text if self.extension == "jar" else f"{text}:{self.extension}"


@dataclass(frozen=True, slots=True)
class Artefact:
    """One line of the lock file.

    Attributes:
        group: The part of the stack that needs it, e.g. ``kafka``.
        coordinate: Where a Maven repository keeps it.
        sha256: Lower-case hex digest of its content.
        size: Length in bytes.
        platform: ``any``, or the only platform that needs it (see :func:`this_platform`).
    """

    group: str
    coordinate: Coordinate
    sha256: str
    size: int
    platform: str = ANY_PLATFORM


def this_platform() -> str:
    """Return this machine as the lock file names it, e.g. ``linux-amd64``.

    Raises:
        EnvironmentError_: No server binaries are published for this system.
    """
    system = {"linux": "linux", "darwin": "darwin"}.get(sys.platform)
    machine = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64v8", "arm64": "arm64v8"}.get(
        platform.machine().lower()
    )
    if system is None or machine is None:
        raise EnvironmentError_(
            f"The local stack has no servers for {sys.platform} on {platform.machine()}.",
            code="STACK_PLATFORM",
            hint="Use Linux or macOS on x86-64 or ARM64, or docker-compose.yml.",
        )
    return f"{system}-{machine}"


def load(path: Path = LOCK_PATH) -> list[Artefact]:
    """Read a lock file, in its order.

    Raises:
        ValueError: A line is malformed; the message has its number.
    """
    artefacts = []
    for number, line in enumerate(path.read_text(encoding="ascii").splitlines(), start=1):
        fields = line.split()
        if not fields or line.startswith("#"):
            continue
        if len(fields) not in (4, 5) or len(fields[2]) != 64:
            raise ValueError(f"{path.name}:{number}: expected group, coordinate, sha256, size[, platform]")
        group, coordinate, sha256, size, *where = fields
        artefacts.append(Artefact(group, Coordinate.parse(coordinate), sha256, int(size), *where))
    return artefacts


def dump(artefacts: Iterable[Artefact], path: Path = LOCK_PATH) -> None:
    """Write a lock file, grouped and sorted so that a change shows as few changed lines."""
    lines = [
        "# Written by `python -m headrace.local.relock`; do not edit.",
        "# group  organisation:name:version[:extension[:classifier]]  sha256  bytes  [platform]",
    ]
    for item in sorted(artefacts, key=lambda a: (a.group, a.platform, a.coordinate)):
        where = "" if item.platform == ANY_PLATFORM else f" {item.platform}"
        lines.append(f"{item.group} {item.coordinate} {item.sha256} {item.size}{where}")
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
