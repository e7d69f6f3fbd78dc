"""A table filled anew beside the target that readers use, and put in its place in one step.

A sink that is built with the setting ``shadow`` (a name, such as ``r7``) is a sink in every respect, but the
targets, tombstones, claims and progress it reads and writes are its own:

    shadow = build(kind, name, {**settings, SHADOW: "r7"})
    shadow.prepare(schema)          # beside the serving target, which stays as it is
    shadow.apply(…); shadow.settle(…)
    shadow.switch(schema)           # from here on readers are served the new rows
    # or, to give up:
    shadow.drop(schema); shadow.forget(topics)

A shadow is of one table. Its name is used once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field

from headrace.model.errors import SinkError, UsageError
from headrace.model.schema import TableSchema
from headrace.observe import failpoints
from sinks.base import Progress, Sink

__all__ = ["SHADOW", "ShadowName", "refuse_setting", "serving_config", "switch"]

_Config = TypeVar("_Config", bound=BaseModel)

SHADOW = "shadow"
"""The setting by which a sink is built as a shadow; it is never a setting of a registered sink."""

ShadowName = Annotated[str, Field(pattern=r"^([a-z0-9]{1,32})?$")]
"""The name of a shadow; empty for a sink that serves readers."""


def refuse_setting(settings: Collection[str]) -> None:
    """Refuse the settings of a sink that somebody registers when they are a shadow's.

    Raises:
        UsageError: ``SINK_SETTINGS_INVALID``.
    """
    if SHADOW in settings:
        raise UsageError(
            f"“{SHADOW}” is no setting of a sink: Headrace itself gives it when it fills a table anew.",
            code="SINK_SETTINGS_INVALID",
            hint="Leave it out.",
        )


def serving_config(config: _Config) -> _Config:
    """Return the settings of the sink that a shadow's rows are meant for.

    Raises:
        SinkError: ``SHADOW_NONE``: they are those of a sink that is no shadow.
    """
    if not getattr(config, SHADOW):
        raise SinkError("Only a shadow can be switched to.", code="SHADOW_NONE")
    return config.model_copy(update={SHADOW: ""})


def switch(
    serving: Sink,
    shadow: Sink,
    schema: TableSchema,
    *,
    settled: Progress,
    filled: bool,
    move: Callable[[], None],
) -> None:
    """Do the steps of :meth:`~sinks.base.Sink.switch` in the order that may stop after any of them.

    Args:
        serving: The sink that readers are served by.
        shadow: The shadow.
        schema: The table.
        settled: What the shadow has stored of its progress.
        filled: Whether the shadow has a target.
        move: Makes the shadow's target the serving one; does nothing when it is.

    Raises:
        SinkError: ``SHADOW_UNSETTLED``.
    """
    if filled and not settled:
        raise SinkError(
            f"The shadow of {schema.table} has not settled anything yet.",
            code="SHADOW_UNSETTLED",
            hint="Let it catch up first.",
            table=schema.table,
        )
    served = serving.progress(list(settled))
    # Lower progress only makes the engine apply some changes once more; higher would lose them.
    lower = {place: offset for place, offset in settled.items() if served.get(place, offset) > offset}
    if lower:
        serving.settle(lower)
    failpoints.hit("switch.before", shadow.kind)
    if filled:
        move()
    failpoints.hit("switch.after", shadow.kind)
    if settled:
        serving.settle(settled)
        failpoints.hit("switch.settled", shadow.kind)
        shadow.forget({topic for topic, _ in settled})
