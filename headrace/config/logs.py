"""How every process of ours logs: one format on standard error, without a password in it."""

from __future__ import annotations

import logging

from headrace.config.secrets import mask_text

__all__ = ["begin_log"]


class _Masked(logging.Formatter):
    """A line, with its traceback, in which the passwords of URLs are replaced."""

    def format(self, record: logging.LogRecord) -> str:
        return mask_text(super().format(record))


def begin_log(level: int) -> None:
    """Log to standard error from ``level`` on; libraries from ``WARNING`` on, for they tell every request."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Masked("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING))
    logging.getLogger("headrace").setLevel(level)
