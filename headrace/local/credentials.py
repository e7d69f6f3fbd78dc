"""The passwords of one stack's servers, made up at its first start and kept in a file of its owner's."""

from __future__ import annotations

import json
import secrets
import shlex
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from headrace.local.cache import write_atomically
from headrace.model.errors import EnvironmentError_

__all__ = ["REDIS_ADMIN", "USER", "Credentials"]

USER = "headrace"
"""Who we are to Kafka, Connect, Elasticsearch and Redis."""

REDIS_ADMIN = "admin"

_FILE = "credentials.json"


def _random() -> str:
    # Letters and digits only: it stands unquoted in URLs, JAAS files and settings of five servers.
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Credentials:
    """One password per server; none is shown by ``repr``.

    Attributes:
        postgres: The superuser's.
        kafka: Of the one user of the broker.
        connect: Of Connect's REST API.
        elasticsearch: Of the REST API.
        redis: Of the user that sinks are.
        redis_admin: Of the user that may do everything.
    """

    postgres: str = field(default_factory=_random, repr=False)
    kafka: str = field(default_factory=_random, repr=False)
    connect: str = field(default_factory=_random, repr=False)
    elasticsearch: str = field(default_factory=_random, repr=False)
    redis: str = field(default_factory=_random, repr=False)
    redis_admin: str = field(default_factory=_random, repr=False)

    @classmethod
    def load(cls, root: Path) -> Credentials | None:
        """Return the passwords of the home at ``root``; None when it was never started.

        Raises:
            EnvironmentError_: When the file cannot be read (``CREDENTIALS_UNREADABLE``), or holds something
                else (``CREDENTIALS_DAMAGED``).
        """
        path = root / _FILE
        try:
            known = dict(json.loads(path.read_text(encoding="ascii")))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise EnvironmentError_(
                f"The passwords in {path} cannot be read: {error.strerror or error}.",
                code="CREDENTIALS_UNREADABLE",
                hint=shlex.join(["ls", "-ld", str(path)]),
            ) from error
        except (ValueError, TypeError):
            raise EnvironmentError_(
                f"The file of passwords {path} is damaged.",
                code="CREDENTIALS_DAMAGED",
                hint="Put a backup of it in its place. Without one nobody gets into the local servers:"
                " `headrace down --purge` deletes them and their data.",
            ) from None
        return cls(**{one.name: str(known[one.name]) for one in fields(cls) if one.name in known})

    @classmethod
    def load_or_make(cls, root: Path) -> Credentials:
        """Return the passwords of the home at ``root``; those that are missing are made up and kept."""
        old = root / "postgres.password"  # homes of 0.1 kept only this one
        known = cls.load(root)
        if known is None:
            known = cls(postgres=old.read_text(encoding="ascii").strip()) if old.is_file() else cls()
        text = json.dumps(asdict(known), indent=2)
        write_atomically(root / _FILE, text.encode("ascii"), mode=0o600)
        old.unlink(missing_ok=True)
        return known
