"""What becomes of the parts of a truncate that Elasticsearch did not do."""

from __future__ import annotations

import pytest

from headrace.model.errors import SinkError, SinkUnavailable
from headrace.model.outcome import APPLIED, STALE, Deferred, Rejected
from sinks.elasticsearch.bulk import insist


def test_a_part_that_is_put_off_makes_the_batch_run_again() -> None:
    insist([APPLIED, STALE])
    with pytest.raises(SinkUnavailable, match="full"):
        insist([APPLIED, Deferred(1.0, "full"), APPLIED])


def test_a_part_that_is_refused_is_an_error() -> None:
    with pytest.raises(SinkError, match="no") as refused:
        insist([Rejected("ES_NO", "no")])
    assert not isinstance(refused.value, SinkUnavailable)
