"""What the connector takes apart becomes what Postgres prints, or is refused."""

from __future__ import annotations

import pytest

from connectors.structures import output, single_text


@pytest.mark.parametrize(
    ("number", "printed"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (0.1, "0.1"),
        (-2.5, "-2.5"),
        (100000.0, "100000"),
        (123456.7, "123456.7"),
        (1000000.0, "1e+06"),
        (16777216.0, "1.6777216e+07"),
        (0.0001, "0.0001"),
        (0.00012345678, "0.00012345678"),
        (0.00001, "1e-05"),
        (1e-45, "1e-45"),
        (3.4028235e38, "3.4028235e+38"),
    ],
)
def test_a_number_is_spelled_as_postgres_spells_a_real(number: float, printed: str) -> None:
    assert single_text(number) == printed


def test_a_sparse_vector_is_put_together_in_the_order_of_its_indices() -> None:
    value = {"dimensions": 500, "vector": [[300, 1e6], [2, -0.1], [17, 2.0]]}
    assert output(value) == "{2:-0.1,17:2,300:1e+06}/500"
    assert output({"dimensions": 5, "vector": []}) == "{}/5"


def test_a_shape_is_its_ewkb_in_upper_case() -> None:
    assert output({"wkb": "AQcAAAAAAAAA", "srid": None}) == "010700000000000000"
    assert output({"srid": 4326, "wkb": "qv8="}) == "AAFF"


@pytest.mark.parametrize(
    "value",
    [
        1,
        ["a"],
        {},
        {"wkb": None},
        {"wkb": "no base64"},
        {"dimensions": 1},
        {"dimensions": None, "vector": []},
        {"dimensions": 2, "vector": [[1]]},
        {"dimensions": 2, "vector": [[1, "NaN"]]},
    ],
)
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        output(value)
