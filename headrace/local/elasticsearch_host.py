"""The process that hosts Elasticsearch: starts a JVM inside Python and a node inside the JVM.

Elasticsearch's own launcher wants a complete JDK and twice the memory; a node object on one class path does
not. Its boot checks and entitlements are skipped with it, which is right for a server on loopback and nowhere
else.

Run as ``python -m headrace.local.elasticsearch_host LIBJVM CLASSPATH HOME CONFIG JVM_OPTION…``.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

import jpype

__all__ = ["main"]


def _start_node(home: str, config: str) -> Any:
    """Do what Elasticsearch's ``main`` does, less its launcher; return the started node."""

    # Classes by name, not packages by attribute: for those JPype opens the jars as file systems, and
    # Elasticsearch then cannot open them itself.
    def elastic(name: str) -> Any:
        return jpype.JClass(f"org.elasticsearch.{name}")

    no_settings = jpype.JClass("java.util.Map").of()
    logs = elastic("common.logging.LogConfigurator")
    logs.registerErrorListener()
    logs.configureESLogging()
    environment = elastic("node.InternalSettingsPreparer").prepareEnvironment(
        elastic("common.settings.Settings").builder().put("path.home", home).build(),
        no_settings,
        jpype.JClass("java.nio.file.Path").of(config),
        jpype.JProxy("java.util.function.Supplier", dict={"get": lambda: "headrace"}),
    )
    logs.configure(environment, True)
    plugins = elastic("plugins.PluginsLoader")
    loader = plugins.createPluginsLoader(
        plugins.loadModulesBundles(environment.modulesDir(), False),
        plugins.loadPluginsBundles(environment.pluginsDir(), False),
        no_settings,
        False,
    )
    return elastic("node.Node")(environment, loader).start()


def main(arguments: list[str]) -> None:
    """Start a node, keep it until SIGTERM or SIGINT, close it in order."""
    libjvm, classpath, home, config, *options = arguments
    asked_to_end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked_to_end.set())
    jpype.startJVM(libjvm, *options, classpath=classpath.split(os.pathsep), convertStrings=False)
    try:
        node = _start_node(home, config)
    except jpype.JException as error:
        # The full trace goes to the log that the parent shows the end of.
        sys.stderr.write(f"{error.stacktrace()}\n")
        sys.stderr.flush()
        os._exit(1)
    asked_to_end.wait()
    node.close()
    sys.stderr.flush()
    # The JVM's own way to end, which Python's would wait for in vain: pools leave threads behind.
    jpype.JClass("java.lang.System").exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
