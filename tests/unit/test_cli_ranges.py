"""What an option takes, its model takes: else a command ends with what nobody can act on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config.source import SourceSettings
from sinks.registry import KINDS, config_model

MODELS = {"source": [SourceSettings], "sink": [config_model(kind) for kind in KINDS]}


def pairs() -> Iterator[tuple[str, Any, Any]]:
    """Yield each option of the commands of sources and sinks that gives a field of their models a value."""
    for room, models in MODELS.items():
        group: Any = get_command(app).commands[room]  # type: ignore[attr-defined]
        for name, command in group.commands.items():
            for parameter in getattr(command, "params", ()):
                for model in models:
                    if (field := model.model_fields.get(parameter.name)) is not None:
                        yield f"{room} {name} --{parameter.name}", parameter, field


def bounds(field: Any) -> tuple[Any, Any]:
    """Return the least and the most that a field takes; None where it has no bound."""
    least = [found.ge for found in field.metadata if hasattr(found, "ge")]
    most = [found.le for found in field.metadata if hasattr(found, "le")]
    return next(iter(least), None), next(iter(most), None)


def test_the_range_of_every_option_is_that_of_its_field() -> None:
    found = {where: ((option.min, option.max), bounds(field)) for where, option, field in pairs()}
    assert len(found) >= 10
    assert not {where: told for where, told in found.items() if told[0] != told[1]}


@pytest.mark.parametrize(
    "words",
    [
        ["source", "check", "postgres://a@h/x", "--snapshot-threads", "17"],
        ["source", "add", "shop", "postgres://a@h/x", "--heartbeat-ms", "700000"],
    ],
)
def test_a_value_beyond_it_is_refused_as_a_mistake_of_whoever_typed_it(words: list[str]) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert words[-2] in done.output
