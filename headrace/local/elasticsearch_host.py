"""The process that hosts Elasticsearch: starts a JVM inside Python and a node inside the JVM.

Elasticsearch's own launcher wants a complete JDK and twice the memory; a node object on one class path does
not. Its boot checks and entitlements are skipped with it, which is right for a server on loopback and nowhere
else.

Run as ``python -m headrace.local.elasticsearch_host LIBJVM CLASSPATH HOME CONFIG JVM_OPTION…``.
"""

from __future__ import annotations

import hmac
import os
import signal
import sys
import threading
from base64 import b64encode
from pathlib import Path
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
    _become(os.environ.get("HEADRACE_ACCOUNT"))  # before it opens a log where that account may put links
    logs.configure(environment, True)
    plugins = elastic("plugins.PluginsLoader")
    loader = plugins.createPluginsLoader(
        plugins.loadModulesBundles(environment.modulesDir(), False),
        plugins.loadPluginsBundles(environment.pluginsDir(), False),
        no_settings,
        False,
    )
    node = elastic("node.Node")(environment, loader)
    _close_doors(node, config, elastic)
    return node.start()


def _field(declared_in: str, name: str) -> Any:
    """Return a private field of a Java class, ready to be read and set."""
    field = jpype.JClass(f"org.elasticsearch.{declared_in}").class_.getDeclaredField(name)
    field.setAccessible(True)
    return field


def _close_doors(node: Any, config: str, elastic: Any) -> None:
    """Let only those in who say the password, and open no port for other nodes.

    Elasticsearch's own security is none of the modules that are loaded. So the password is asked for where
    every request comes by first, before any part of Elasticsearch looks at it.
    """
    expected = "Basic " + b64encode(Path(config, "login").read_bytes()).decode()
    service = node.injector().getInstance
    http = service(elastic("http.HttpServerTransport").class_)
    dispatcher = _field("http.AbstractHttpServerTransport", "dispatcher")
    inner = dispatcher.get(http)
    answer, status = elastic("rest.RestResponse"), elastic("rest.RestStatus")

    def dispatch(request: Any, channel: Any, context: Any) -> None:
        given = request.header("Authorization")
        if given is not None and hmac.compare_digest(str(given).encode(), expected.encode()):
            inner.dispatchRequest(request, channel, context)
            return
        refusal = answer(status.UNAUTHORIZED, "text/plain; charset=UTF-8", "A password is asked for.\n")
        refusal.addHeader("WWW-Authenticate", 'Basic realm="headrace"')
        channel.sendResponse(refusal)

    def refuse(channel: Any, context: Any, cause: Any) -> None:
        channel.sendResponse(answer(status.BAD_REQUEST, "text/plain; charset=UTF-8", "A bad request.\n"))

    kind = elastic("http.HttpServerTransport$Dispatcher")
    door = {"dispatchRequest": dispatch, "dispatchBadRequest": refuse, "getStats": inner.getStats}
    dispatcher.set(http, jpype.JObject(jpype.JProxy(kind, dict=door), kind))
    # It has to believe that it listens somewhere for other nodes.
    transport = _field("transport.TransportService", "transport").get(
        service(elastic("transport.TransportService").class_)
    )
    loopback = jpype.JClass("java.net.InetAddress").getLoopbackAddress()
    nowhere = elastic("common.transport.TransportAddress")(loopback, 0)
    bound = elastic("common.transport.BoundTransportAddress")([nowhere], nowhere)
    _field("transport.TcpTransport", "boundAddress").set(transport, bound)


def _become(account: str | None) -> None:
    """Give up root for an account, ``uid:gid``, once all that only root may read is open."""
    if account is None:
        return
    uid, gid = map(int, account.split(":"))
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


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
