"""What a script answers for each row → its outcome."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.outcome import ROW_MISSING, STALE, Deferred, Outcome, Rejected
from sinks.redis.client import code_word, refusal

__all__ = ["note"]

_TAKEN = Rejected("REDIS_KEY_TAKEN", "The key holds a value that is not a row of this sink.")


def note(outcomes: list[Outcome], numbers: Sequence[int], answer: Sequence[bytes]) -> None:
    """Write a script's letters into ``outcomes``.

    Raises:
        SinkError: When Redis refused a write for a reason that is not the row's.
    """
    letters = answer[0]
    if letters == b"A" * len(letters):
        return
    notes = iter(answer[1:])
    for number, letter in zip(numbers, letters.decode(), strict=True):
        if letter != "A":
            outcomes[number] = _OUTCOMES.get(letter) or _refused(next(notes).decode())


_OUTCOMES: dict[str, Outcome] = {
    "S": STALE,
    "M": ROW_MISSING,
    "T": _TAKEN,
    "R": Deferred(0.1, "The row keeps changing while it is being merged.", of_row=True),
}


def _refused(words: str) -> Outcome:
    if code_word(words) == "OOM":
        return Deferred(1.0, words)
    raise refusal(words)
