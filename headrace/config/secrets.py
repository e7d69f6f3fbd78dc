"""Secrets live in private files and are passed on by reference; nothing that is shown holds one."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.config.pipeline import write_private

__all__ = ["MASK", "SecretRef", "is_secret", "mask_settings", "mask_text", "mask_url"]

MASK = "***"
_SENSITIVE = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|api_?key|(client|server)_key|credential", re.IGNORECASE
)
_IN_URL = re.compile(
    # Up to the last @ before another URL begins: a password may hold one, or a slash, that nobody encoded.
    r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?P<user>[^\s:/@]*):(?:(?!://)\S)+@",
    re.IGNORECASE,
)
_IN_DSN = re.compile(
    r"(?P<name>\b[\w.-]*(?:pass(?:word|wd|phrase)?|secret|token|api_?key|(?:client|server)_key|credential)\s*=\s*)"
    r"('(?:[^'\\]|\\.)*'|\"[^\"]*\"|[^\s&;,]+)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SecretRef:
    """Where a secret lies: one key of a private properties file. It never holds the secret.

    Args:
        path: The file; mode 0600, readable by the Connect worker's user.
        key: The property.
    """

    path: Path
    key: str

    @property
    def placeholder(self) -> str:
        """Return the text that Connect's ``FileConfigProvider`` replaces on the worker."""
        return f"${{file:{self.path}:{self.key}}}"

    def store(self, secret: str) -> None:
        """Write the secret as the file's only property."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self.path, f"{self.key}={_escaped(secret)}\n")
        folder = self.path.parent.stat()
        if folder.st_uid != os.geteuid() == 0:
            # Who reads it, Connect, runs under the account that the directory is of.
            os.chown(self.path, folder.st_uid, folder.st_gid, follow_symlinks=False)

    def read(self) -> str:
        """Return the secret.

        Raises:
            KeyError: When the file does not hold the key.
            OSError: When the file cannot be read.
        """
        for line in self.path.read_text().splitlines():
            name, _, value = line.partition("=")
            if name == self.key:
                return _unescaped(value)
        raise KeyError(self.key)

    def forget(self) -> None:
        """Remove the file; idempotent."""
        self.path.unlink(missing_ok=True)


def _escaped(text: str) -> str:
    """Return ``text`` as a value of a Java properties file, pure ASCII."""
    units = text.encode("utf-16-be")
    chars = [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
    plain = {ord(c) for c in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+@~"}
    return "".join(chr(c) if c in plain else f"\\u{c:04x}" for c in chars)


def _unescaped(text: str) -> str:
    units = re.sub(r"\\u([0-9a-f]{4})", lambda m: chr(int(m[1], 16)), text)
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be")


def is_secret(name: str) -> bool:
    """Say whether a parameter or setting of that name holds a secret."""
    return _SENSITIVE.search(name) is not None


def mask_url(url: str) -> str:
    """Return a URL, or several separated by commas, with the passwords in it replaced."""
    return mask_text(url)


def mask_text(text: str) -> str:
    """Return ``text`` with the passwords of URLs and ``password=…`` pairs in it replaced."""
    text = _IN_URL.sub(lambda m: f"{m['scheme']}{m['user']}:{MASK}@", text)
    return _IN_DSN.sub(lambda m: f"{m['name']}{MASK}", text)


def mask_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings fit to be shown: sensitive names and passwords in URLs are replaced."""
    shown: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            shown[name] = mask_settings(value)
        elif value is not None and is_secret(name):
            shown[name] = MASK
        else:
            shown[name] = mask_url(value) if isinstance(value, str) else value
    return shown
