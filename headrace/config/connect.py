"""How Connect is reached: the address of its REST API, and who vouches for its certificate."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from headrace.model.errors import UsageError

__all__ = ["ConnectAddress"]


@dataclass(frozen=True, slots=True)
class ConnectAddress:
    """The address of a worker's REST API.

    Args:
        url: ``http://…`` or ``https://…``; it may hold user and password.
        authorities: A PEM file of certificates that are trusted; None means those of the system.
    """

    url: str
    authorities: Path | None = None

    @classmethod
    def parse(cls, text: str) -> ConnectAddress:
        """Return the address that ``str`` made a text of: the URL, or ``URL;path``."""
        url, _, path = text.rpartition(";")
        if not Path(path).is_absolute():  # a password may have a semicolon, too
            return cls(text.rstrip("/"))
        return cls(url.rstrip("/"), Path(path))

    def __str__(self) -> str:
        return f"{self.url};{self.authorities}" if self.authorities else self.url

    def verify(self) -> ssl.SSLContext | bool:
        """Return what the server's certificate is checked by; False where there is none.

        Raises:
            UsageError: When the file of authorities cannot be read (``CONNECT_CA_INVALID``).
        """
        if not self.url.startswith("https:"):
            return False  # loading the authorities would take most of a call
        try:
            return ssl.create_default_context(cafile=self.authorities)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                f"The authorities in {self.authorities} cannot be read: {error.strerror or error}.",
                code="CONNECT_CA_INVALID",
                hint="Let HEADRACE_CONNECT_CA name a PEM file of the certificates that are trusted.",
            ) from None
