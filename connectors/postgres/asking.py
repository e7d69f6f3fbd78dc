"""Questions that only the rows of a partition answer; what is not answered is asked again at a later look."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from connectors.postgres.courtesy import Courtesy
from connectors.postgres.session import Session, rows_within, told_by

if TYPE_CHECKING:
    from typing_extensions import LiteralString

__all__ = ["Asking", "Unknown"]

_FOR_ALL_S = 2.0
_WHOLE = 0.9
"""A question that was ended before this part of its time had others waiting."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """That a question was not answered.

    Args:
        why: For people.
        statement: What lets us ask, as SQL; empty when a later look may be answered without.
        tried: Whether it had its time: asked again it may go on like that for ever.
    """

    why: str
    statement: str = ""
    tried: bool = False


class Asking:
    """Asks partitions for rows during one look, for two seconds in all.

    Args:
        connection: To the database, each statement a transaction.
        courtesy: Ends a question for which another session waits.
    """

    def __init__(self, connection: Session, courtesy: Courtesy) -> None:
        self._connection = connection
        self._courtesy = courtesy
        self._left_s = _FOR_ALL_S

    def holds(
        self, unit: Mapping[str, Any], condition: LiteralString = "true", *values: object
    ) -> bool | Unknown:
        """Return whether a partition holds a row ``t`` of which the condition is true.

        Args:
            unit: What the catalogue says of it, see :mod:`connectors.postgres.facts`.
            condition: With a placeholder for each of the values.
            values: Of the condition.

        Raises:
            psycopg.Error: When the session has ended.
        """
        if unit["barred"]:
            return Unknown("our role may not read it", " ".join(unit["barred"]))
        if self._left_s <= 0:
            return Unknown("others took the time that there is for all")
        true = sql.SQL(condition).format(*map(sql.Literal, values))
        exists = sql.SQL("SELECT EXISTS (SELECT FROM ONLY {} t WHERE {}) AS found")
        query = exists.format(sql.SQL(unit["name"]), true)  # quoted already, by the database
        began, had_s = time.monotonic(), self._left_s
        try:
            with self._courtesy.looking():
                (told,) = rows_within(self._connection, int(had_s * 1000), query)
            return bool(told["found"])
        except psycopg.errors.QueryCanceled:
            if time.monotonic() - began < had_s * _WHOLE:
                return Unknown("somebody else waited for it")
            return Unknown("it did not answer in time", tried=had_s > _FOR_ALL_S / 2)
        except psycopg.errors.LockNotAvailable:
            return Unknown("somebody keeps it locked")
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedTable):
            return Unknown("it was changed meanwhile")
        except psycopg.Error as error:  # such as a page of it that is damaged
            if self._connection.closed:
                raise
            return Unknown(told_by(error))
        finally:
            self._left_s -= time.monotonic() - began
