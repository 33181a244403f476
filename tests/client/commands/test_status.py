import json
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2

from tests.client.command_line import Dragoman
from tests.client.scripted_server import ScriptedServer


def test_serving_server_exits_0(server: ScriptedServer, dragoman: Dragoman) -> None:
    result = dragoman("status")

    assert result.exit_code == 0
    assert result.lines == [
        f"{server.address} is SERVING",
        "  en-de  SERVING  en → de  float32 on cpu (PyTorch)",
    ]


def test_server_that_does_not_serve_exits_1(server: ScriptedServer, dragoman: Dragoman) -> None:
    server.health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)

    result = dragoman("status")

    assert result.exit_code == 1
    assert result.lines[0] == f"{server.address} is NOT_SERVING"


def test_missing_server_exits_1_with_what_to_do(dragoman: Dragoman) -> None:
    result = dragoman("status", "--server", "127.0.0.1:1")

    assert result.exit_code == 1
    assert "start one with `dragoman-server`" in result.stderr


def test_json_says_the_same(server: ScriptedServer, dragoman: Dragoman) -> None:
    server.health.set("en-de", health_pb2.HealthCheckResponse.NOT_SERVING)

    [line] = dragoman("status", "--json").lines

    assert json.loads(line) == {
        "server": server.address,
        "status": "SERVING",
        "models": [{"name": "en-de", "status": "NOT_SERVING"}],
    }


def test_server_is_named_before_or_after_the_command_and_the_last_counts(
    server: ScriptedServer, dragoman: Dragoman, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_SERVER", "127.0.0.1:1")

    assert dragoman("--server", server.address, "status").exit_code == 0
    assert dragoman("status", "--server", server.address).exit_code == 0
    assert dragoman("--server", "127.0.0.1:2", "status", "--server", server.address).exit_code == 0
    assert dragoman("status").exit_code == 1


def test_certificates_that_are_none_exit_2(dragoman: Dragoman, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("nothing of the kind")

    result = dragoman("status", "--ca-file", str(path))

    assert result.exit_code == 2
    assert "holds no PEM certificate" in result.stderr


def test_tls_with_a_server_that_speaks_none_is_said_so(dragoman: Dragoman) -> None:
    result = dragoman("status", "--tls")

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: no TLS with the server at")


def test_count_without_watch_exits_2(dragoman: Dragoman) -> None:
    assert dragoman("status", "--count", "3").exit_code == 2
