from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter

from dragoman_server.errors import AddressError
from dragoman_server.monitoring import MonitoringServer, _QuietHandler


class State:
    is_alive = True
    is_ready = True


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def server(state: State) -> Iterator[MonitoringServer]:
    registry = CollectorRegistry()
    Counter("made_up", "For the test.", registry=registry).inc(3)
    server = MonitoringServer(
        "127.0.0.1", 0, registry, is_alive=lambda: state.is_alive, is_ready=lambda: state.is_ready
    )
    server.start()
    yield server
    server.stop()


def get(server: MonitoringServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_metrics_are_scraped(server: MonitoringServer):
    status, body = get(server, "/metrics")
    assert status == 200
    assert "made_up_total 3.0" in body


@pytest.mark.parametrize(("path", "flag"), [("/healthz", "is_alive"), ("/readyz", "is_ready")])
def test_checks_follow_the_state(server: MonitoringServer, state: State, path: str, flag: str):
    assert get(server, path) == (200, "ok\n")
    setattr(state, flag, False)
    assert get(server, path)[0] == 503


def test_other_paths_are_not_found(server: MonitoringServer):
    assert get(server, "/metric")[0] == 404


def test_a_port_in_use_is_an_error_in_one_line(server: MonitoringServer):
    with pytest.raises(AddressError, match=f"127.0.0.1:{server.port}: Address already in use"):
        MonitoringServer(
            "127.0.0.1", server.port, CollectorRegistry(), is_alive=lambda: True, is_ready=lambda: True
        )


def test_a_connection_that_stays_silent_is_closed_without_a_word(
    server: MonitoringServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(_QuietHandler, "timeout", 0.05)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as silent:
        assert silent.recv(1) == b""
    assert capfd.readouterr() == ("", "")
