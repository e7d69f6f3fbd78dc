"""The comparison alone, on a demo that was kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from rich.console import Console

from headrace.control.context import Context
from headrace.demo import shop
from headrace.demo.compare import Comparison
from headrace.demo.lookout import Lookout, behind, shows_all_since
from headrace.demo.ownership import Belongings
from headrace.demo.pipeline import open_stores
from headrace.demo.stock import TABLES
from headrace.demo.verdict import compare_all, print_comparisons
from headrace.local.endpoints import Endpoints
from headrace.local.stack import Stack
from headrace.model.errors import StackError, UsageError

__all__ = ["check"]

_DRAIN_S = 120.0


def check(stack: Stack, context_of: Callable[[Endpoints], Context], console: Console) -> list[Comparison]:
    """Wait until the sinks have applied what was written until now, then compare every row.

    Raises:
        UsageError: When there is no kept demo (``DEMO_ABSENT``).
        StackError: When lag does not fall to zero (``DEMO_LAG``).
    """
    endpoints = stack.endpoints()
    context = context_of(endpoints)
    if not Belongings.of(stack.home.root, context, endpoints.postgres_dsn).complete():
        raise UsageError(
            f"There is no kept demo in {stack.home.root}.", code="DEMO_ABSENT", hint="headrace demo --keep"
        )
    last = Lookout(context).wait(shows_all_since(time.monotonic()), timeout=_DRAIN_S)
    if not last.done:
        raise StackError(
            f"Lag has not fallen to zero: {behind(last.report)}.", code="DEMO_LAG", hint="headrace lag"
        )
    with ExitStack() as closing:
        stores = open_stores(context, endpoints)
        for store in stores:
            closing.callback(store.close)
        comparisons = compare_all(shop.dsn_of(endpoints.postgres_dsn), stores, TABLES)
    print_comparisons(console, comparisons)
    return comparisons
