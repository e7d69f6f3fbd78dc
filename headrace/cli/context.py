"""Where commands meet servers: the local stack's addresses, or those of the environment, for control."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headrace.cli.home import HomeOption, home_of
from headrace.config.pipeline import EngineSpec
from headrace.config.server import ServerSettings
from headrace.control.context import Context
from headrace.local.endpoints import Endpoints, endpoints_of
from headrace.local.home import Home
from headrace.model.errors import UsageError
from headrace.model.schema import TableId

__all__ = ["HomeOption", "addresses", "home_of", "open_context", "table_id"]


def addresses(home: Home) -> Mapping[str, str]:
    """Return addresses by the names of :class:`Endpoints`; the environment overrules the local stack.

    Raises:
        UsageError: When there is neither (``STACK_ABSENT``).
    """
    settings = ServerSettings.of_environment()
    given = {
        name: str(value)
        for name, value in settings.model_dump().items()
        if name in Endpoints.__dataclass_fields__ and value is not None
    }
    if "kafka_bootstrap" in given and settings.kafka_properties is not None:
        given["kafka_bootstrap"] += f";{settings.kafka_properties.expanduser().absolute()}"
    if "connect_url" in given and settings.connect_ca is not None:
        given["connect_url"] += f";{settings.connect_ca.expanduser().absolute()}"
    if home.exists():
        return {**endpoints_of(home).as_dict(), **given}
    if {"connect_url", "kafka_bootstrap"} <= given.keys():
        return {"lake_path": str(home.lake), **given}
    raise UsageError(
        f"There is no stack in {home.root}.",
        code="STACK_ABSENT",
        hint="headrace up; or set HEADRACE_CONNECT_URL and HEADRACE_KAFKA_BOOTSTRAP to use other servers.",
    )


def open_context(root: Path | None, *, begins: bool = False) -> Context:
    """Return what control needs to act on the installation at ``root``.

    Args:
        root: Its directory; None for the default one.
        begins: Whether the command may be the first of an installation that uses servers of one's own. Any
            other makes no directory, and no registry, where a name was mistyped.

    Raises:
        UsageError: When there is neither a stack nor a word about other servers (``STACK_ABSENT``), or
            nothing was ever registered there (``HOME_EMPTY``).
    """
    home = home_of(root)
    known = addresses(home)
    if not (begins or home.exists() or _is_used(home)):
        raise UsageError(
            f"Nothing was ever registered in {home.root}.",
            code="HOME_EMPTY",
            hint="Check --home and HEADRACE_HOME; or begin there: headrace source add NAME env:URL",
        )

    def engine() -> EngineSpec:
        # The jars may have to be fetched; only commands that start the engine wait for that.
        from headrace.local.artefacts import resolve
        from headrace.local.driver import driver_cache
        from headrace.local.java import spark_java_home

        jars = resolve(["spark"])["spark"]
        learnt = driver_cache(jars)
        return EngineSpec(
            pipelines=home.pipelines,
            progress=home.progress,
            requests=home.requests,
            run=home.run,
            logs=home.logs,
            work=home.root / "spark",
            java_home=spark_java_home(),
            jars=tuple(jars),
            java_options=tuple(learnt.options(training=False)) if learnt else (),
        )

    return Context(
        registry=home.root / "registry.db",
        secrets=home.secrets,
        connect_url=known["connect_url"],
        kafka_bootstrap=known["kafka_bootstrap"],
        pipelines=home.pipelines,
        progress=home.progress,
        checkpoints=home.checkpoints,
        dead_letters=home.dead_letters,
        requests=home.requests,
        owners=home.owners,
        run=home.run,
        connect_log=home.log("connect"),
        engine=engine,
    )


def _is_used(home: Home) -> bool:
    """Return whether something was registered in a home without servers; pipelines outlive a registry."""
    return (home.root / "registry.db").exists() or home.pipelines.exists()


def table_id(text: str) -> TableId:
    """Return the table of ``schema.name``; without a schema it is in ``public``."""
    schema, dot, name = text.partition(".")
    return TableId(schema, name) if dot else TableId("public", text)
