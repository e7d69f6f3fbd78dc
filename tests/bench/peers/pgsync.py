"""PGSync, as its documentation says to run it: ``bootstrap``, then the daemon, all settings its defaults."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["NAME", "PGSync"]

NAME = "pgsync"
_COMMAND_S = 60.0


@dataclass(frozen=True, slots=True)
class PGSync:
    """One installation, told of one database.

    Args:
        home: Its environment.
        dsn: The database.
        search_url: An Elasticsearch its client takes.
        redis_url: A Redis to queue in; a database of its own there.
    """

    home: Path
    dsn: str
    search_url: str
    redis_url: str

    @contextmanager
    def running(self, table: str, columns: Sequence[str]) -> Iterator[int]:
        """Set triggers and slot up, start the daemon, yield its pid; then end it and remove what it made.

        Raises:
            RuntimeError: When one of its commands fails, with its last words.
        """
        with tempfile.TemporaryDirectory(prefix="headrace-pgsync-") as directory:
            work = Path(directory)
            schema = work / "schema.json"
            database = urlsplit(self.dsn).path.lstrip("/")
            node = {"table": table, "columns": list(columns)}
            schema.write_text(json.dumps([{"database": database, "index": database, "nodes": node}]))
            self._run(work, "bootstrap", "--config", str(schema))
            try:
                with (work / "daemon.log").open("wb") as log:
                    command = self._command("pgsync", "--config", str(schema), "--daemon")
                    daemon = subprocess.Popen(
                        command, cwd=work, env=self._environment(work), stdout=log, stderr=log
                    )
                try:
                    yield daemon.pid
                    if daemon.poll() is not None:
                        words = (work / "daemon.log").read_text(errors="replace")[-800:]
                        raise RuntimeError(f"the daemon ended with {daemon.returncode}: {words}")
                finally:
                    daemon.kill()
                    daemon.wait()
            finally:
                self._run(work, "bootstrap", "--config", str(schema), "--teardown")

    def _command(self, script: str, *arguments: str) -> list[str]:
        return [str(self.home / "bin" / "python"), str(self.home / "bin" / script), *arguments]

    def _run(self, work: Path, script: str, *arguments: str) -> None:
        done = subprocess.run(
            self._command(script, *arguments),
            cwd=work,
            env=self._environment(work),
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{script} {arguments[-1]}: {(done.stderr or done.stdout).strip()[-800:]}")

    def _environment(self, work: Path) -> dict[str, str]:
        server = urlsplit(self.dsn)
        return {
            "PATH": os.environ.get("PATH", ""),
            "PG_HOST": server.hostname or "",
            "PG_PORT": str(server.port),
            "PG_USER": unquote(server.username or ""),
            "PG_PASSWORD": unquote(server.password or ""),
            "ELASTICSEARCH_URL": self.search_url,
            "REDIS_URL": self.redis_url,
            "CHECKPOINT_PATH": str(work),
        }
