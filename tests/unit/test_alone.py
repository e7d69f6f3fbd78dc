"""Commands that change what a source captures go one after another; those of another source beside them."""

from __future__ import annotations

import os
from threading import Thread

from headrace.control.alone import alone
from headrace.control.context import Context
from headrace.control.pipelines import working_on
from tests.support.waiting import ended, until


def test_who_waits_is_told_for_whom_and_other_sources_do_not_wait(context: Context) -> None:
    said: list[str] = []

    def works(source: str) -> None:
        with alone(context, source, "a command that takes tables in", said.append):
            pass

    with alone(context, "shop", "`headrace recover shop`", said.append):
        other = Thread(target=works, args=("depot",))
        other.start()
        ended(other)
        assert said == []
        same = Thread(target=works, args=("shop",))
        same.start()
        until(lambda: said)
        assert same.is_alive()
    ended(same)
    assert said == [f"shop: waiting for `headrace recover shop` (process {os.getpid()})"]


def test_who_waits_for_a_sink_is_told_for_whom(context: Context) -> None:
    said: list[str] = []

    def works() -> None:
        with working_on(context, "cache", "`headrace sink remove cache`", said.append):
            pass

    with working_on(context, "cache", "`headrace recover shop`", said.append):
        other = Thread(target=works)
        other.start()
        until(lambda: said)
    ended(other)
    assert said == [f"cache: waiting for `headrace recover shop` (process {os.getpid()})"]
