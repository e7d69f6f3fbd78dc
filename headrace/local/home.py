"""Where one stack keeps everything it knows: one directory, the stack's home."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.local.cache import write_atomically
from headrace.model.errors import EnvironmentError_, UsageError

__all__ = ["Home"]

_MARKER = "headrace-home.json"


@dataclass(frozen=True, slots=True)
class Home:
    """One stack's directory; two homes are two stacks that know nothing of each other.

    Attributes:
        root: The directory; it need not exist yet.
    """

    root: Path

    @classmethod
    def default(cls) -> Home:
        """Return the home of ``HEADRACE_HOME``, else the user's own."""
        own = os.environ.get("HEADRACE_HOME")
        if own:
            return cls(Path(own).expanduser().absolute())
        if os.geteuid() == 0:
            return cls(Path("/var/lib/headrace/default"))
        data = os.environ.get("XDG_DATA_HOME")
        base = Path(data) if data else Path.home() / ".local" / "share"
        return cls(base / "headrace" / "default")

    def data(self, server: str) -> Path:
        """Return the data directory of one server."""
        return self.root / "data" / server

    def config(self, server: str) -> Path:
        """Return the directory of one server's generated configuration."""
        return self.root / "config" / server

    def log(self, server: str) -> Path:
        """Return the log file of one server."""
        own = self.logs / server  # of a server that runs under another account, and writes it itself
        return (own if own.is_dir() else self.logs) / f"{server}.log"

    def pidfile(self, process: str) -> Path:
        """Return the pid file of a server or of another process of this stack, e.g. ``engine``."""
        return self.run / f"{process}.pid"

    @property
    def logs(self) -> Path:
        """Directory of the log files."""
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """Directory of pid files and the lock."""
        return self.root / "run"

    @property
    def ports_file(self) -> Path:
        """Where the ports are kept."""
        return self.root / "ports.json"

    @property
    def kafka_properties(self) -> Path:
        """What Kafka's clients need to be let in; only its owner may read it."""
        return self.root / "kafka-client.properties"

    @property
    def lake(self) -> Path:
        """Root of the Delta lake."""
        return self.root / "lake"

    @property
    def registry_url(self) -> str:
        """SQLAlchemy URL of the registry."""
        return f"sqlite:///{self.root}/registry.db"

    @property
    def pipelines(self) -> Path:
        """Directory of the pipeline specifications."""
        return self.root / "pipelines"

    @property
    def checkpoints(self) -> Path:
        """Directory of the streaming checkpoints."""
        return self.root / "checkpoints"

    @property
    def secrets(self) -> Path:
        """Directory of the passwords' files; only its owner may enter."""
        return self.root / "secrets"

    @property
    def progress(self) -> Path:
        """Directory of the progress reports."""
        return self.root / "progress"

    @property
    def owners(self) -> Path:
        """Directory of what the sinks' queries claimed their targets as."""
        return self.root / "owners"

    @property
    def requests(self) -> Path:
        """Directory of requests to the sinks' queries."""
        return self.root / "requests"

    @property
    def dead_letters(self) -> Path:
        """Directory of dead letter files; in the lake, so that whatever reads that can read them."""
        return self.lake / "_dead_letters"

    def exists(self) -> bool:
        """Say whether a stack was ever made here."""
        return (self.root / _MARKER).is_file()

    def create(self, *, passable: bool = False) -> None:
        """Make the directories that are missing, and close them to everybody else.

        Args:
            passable: Whether another account has to pass through to what is its own.

        Raises:
            UsageError: ``HOME_NOT_OURS``: it holds something else, or is another user's.
            EnvironmentError_: ``HOME_UNWRITABLE``.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if self.exists() and os.geteuid() == 0 and (self.root / _MARKER).stat().st_uid != 0:
                # Files of root's would be left in it, which its user could no longer use.
                raise UsageError(
                    f"The home {self.root} belongs to another user: run the command as that one.",
                    code="HOME_NOT_OURS",
                    hint="Or name another directory with --home or HEADRACE_HOME.",
                )
            if not self.exists() and any(self.root.iterdir()):
                raise UsageError(
                    f"{self.root} is not empty and is no headrace home.",
                    code="HOME_NOT_OURS",
                    hint="Name an empty or new directory with --home or HEADRACE_HOME.",
                )
            if not self.exists():
                write_atomically(self.root / _MARKER, json.dumps({"format": 1}).encode(), mode=0o600)
            for directory in (self.root, self.root / "data", self.root / "config", self.logs):
                directory.mkdir(exist_ok=True)
                directory.chmod(0o711 if passable else 0o700)
            for directory in (
                self.run,
                self.lake,
                self.pipelines,
                self.checkpoints,
                self.progress,
                self.requests,
                self.owners,
            ):
                directory.mkdir(mode=0o700, exist_ok=True)
                directory.chmod(0o700)
            self._close()
        except OSError as error:
            raise EnvironmentError_(
                f"The home {self.root} cannot be made: {error.strerror}.",
                code="HOME_UNWRITABLE",
                hint="Name a directory you may write with --home or HEADRACE_HOME.",
            ) from error

    def _close(self) -> None:
        """Close to others what lies where they may pass, whoever opened it."""
        on_the_way = (self.root, self.root / "data", self.root / "config", self.logs)
        for path in (path for folder in on_the_way for path in folder.iterdir()):
            if path not in on_the_way and not path.is_symlink():
                with suppress(FileNotFoundError):  # another command has replaced it
                    path.chmod(0o700 if path.is_dir() else 0o600)

    def refuse_foreign(self) -> None:
        """Refuse to delete what is no home.

        Raises:
            UsageError: ``HOME_NOT_OURS``.
        """
        if self.root.exists() and (not self.exists() or self.root.is_symlink()):
            raise UsageError(
                f"{self.root} is no headrace home; nothing was deleted.",
                code="HOME_NOT_OURS",
                hint="Check --home and HEADRACE_HOME.",
            )

    def purge(self) -> None:
        """Delete the home and everything in it.

        Raises:
            UsageError: ``HOME_NOT_OURS``: this is no headrace home, so nothing is deleted.
        """
        if not self.root.exists():
            return
        self.refuse_foreign()
        # The marker goes last, so that a purge that was cut short can be run again.
        for entry in self.root.iterdir():
            if entry.name == _MARKER:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        shutil.rmtree(self.root)
