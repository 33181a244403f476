"""The HTTP side: /metrics for Prometheus, /healthz and /readyz for whoever runs the server.

It is prometheus-client's own WSGI application on the standard library's server, in threads of its own: no further
dependency, and neither a scrape nor a slow reader keeps the event loop from its calls.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from socketserver import TCPServer, ThreadingMixIn
from typing import TypeAlias
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app

from dragoman_server.errors import AddressError
from dragoman_server.logs import describe_exception, log_event

logger = logging.getLogger(__name__)

_Check: TypeAlias = Callable[[], bool]
_POLL_SECONDS = 0.1  # how soon a stop is noticed
_App: TypeAlias = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]


class MonitoringServer:
    """Serves the metrics and the state of the server over HTTP.

    Args:
        host: Where to listen.
        port: On which port; 0 takes a free one.
        registry: The metrics.
        is_alive: Whether the process does its work; where not, it should be started anew.
        is_ready: Whether it takes calls.

    Raises:
        AddressError: The address can't be listened on.
    """

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, *, is_alive: _Check, is_ready: _Check
    ) -> None:
        app = _routes(registry, is_alive, is_ready)
        server_class = _ThreadingServer6 if ":" in host else _ThreadingServer
        try:
            self._server = make_server(host, port, app, server_class, _QuietHandler)
        except OSError as error:
            raise AddressError(f"http: can't listen on {host}:{port}: {error.strerror or error}") from error
        self.port: int = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="monitoring", daemon=True
        )

    def start(self) -> None:
        """Starts to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stops answering and frees the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _ThreadingServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    # Restarting must not wait for old connections; an address in use by a living server is still refused.
    allow_reuse_address = True

    def server_bind(self) -> None:
        # HTTPServer looks its own name up in the DNS here, which takes seconds where none answers.
        TCPServer.server_bind(self)
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), int(port)
        self.setup_environ()

    def handle_error(self, *_: object) -> None:
        """Logs what broke a connection; the base class would print a traceback, to a peer's silence, too."""
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError | TimeoutError):  # a peer that left
            log_event(logger, logging.ERROR, "http connection failed", **describe_exception(error))


class _ThreadingServer6(_ThreadingServer):
    address_family = socket.AF_INET6


class _QuietHandler(WSGIRequestHandler):
    timeout = 10  # seconds that a silent connection may hold a thread

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Scrapes are no events."""


def _routes(registry: CollectorRegistry, is_alive: _Check, is_ready: _Check) -> _App:
    metrics: _App = make_wsgi_app(registry)
    checks = {"/healthz": is_alive, "/readyz": is_ready}

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return metrics(environ, start_response)
        status, body = "404 Not Found", "try /metrics, /healthz or /readyz"
        if path in checks:
            status, body = ("200 OK", "ok") if checks[path]() else ("503 Service Unavailable", "not ready")
        start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")])
        return [f"{body}\n".encode()]

    return app
