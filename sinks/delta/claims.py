"""Claims upon tables of a lake: numbered files beside them, of which the highest speaks.

A number is taken by linking a finished file to its name, which a file system does for one only.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from headrace.model.claim import Claim
from headrace.model.schema import TableId
from headrace.observe.disk import make_folder, sync
from sinks.delta.config import directory_name

__all__ = ["Claims"]


class Claims:
    """Who may write to which table of one lake.

    Args:
        directory: Where the files are; made with the first claim.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def standing(self, table: TableId) -> Claim | None:
        """Return the claim upon a table, that of this moment."""
        return self._highest(table)[1]

    def put(self, table: TableId, claim: Claim, instead_of: Claim | None) -> bool:
        """Claim a table; return False when something else than ``instead_of`` stands there."""
        number, found = self._highest(table)
        if found != instead_of:
            return False
        folder = self._folder(table)
        make_folder(folder)
        ours = self._path(table, number + 1)
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".", encoding="utf-8") as draft:
            json.dump(claim.as_dict(), draft)
            draft.flush()
            os.fsync(draft.fileno())
            try:
                os.link(draft.name, ours)
            except FileExistsError:
                return False
        sync(folder)
        if self._highest(table)[1] != claim:
            # Others have come and gone further meanwhile, and tidied the number up that we took.
            ours.unlink(missing_ok=True)
            return False
        for older in self._numbers(table):
            if older <= number:
                self._path(table, older).unlink(missing_ok=True)
        return True

    def remove(self, table: TableId) -> None:
        """Remove the claim upon a table; directories that become empty go."""
        for number in self._numbers(table):
            self._path(table, number).unlink(missing_ok=True)
        for directory in (self._folder(table), self._directory):
            if directory.is_dir() and not any(directory.iterdir()):
                directory.rmdir()

    def _folder(self, table: TableId) -> Path:
        return self._directory / directory_name(table.schema)

    def _path(self, table: TableId, number: int) -> Path:
        return self._folder(table) / f"{directory_name(table.name)}.{number}"

    def _numbers(self, table: TableId) -> list[int]:
        folder, stem = self._folder(table), directory_name(table.name)
        names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        tails = (name.rpartition(".") for name in names)
        return sorted(int(tail) for head, _, tail in tails if head == stem and tail.isdigit())

    def _highest(self, table: TableId) -> tuple[int, Claim | None]:
        while numbers := self._numbers(table):
            try:
                content = self._path(table, numbers[-1]).read_text(encoding="utf-8")
            except FileNotFoundError:
                continue  # replaced since it was listed
            return numbers[-1], Claim.from_dict(json.loads(content))
        return 0, None
