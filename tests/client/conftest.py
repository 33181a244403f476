from collections.abc import Callable, Iterator

import pytest

from tests.client.command_line import Result, invoke
from tests.client.scripted_server import ScriptedServer, serve


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A fresh server with a fresh script."""
    with serve() as running:
        yield running


@pytest.fixture
def dragoman(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command line against the server: call it with arguments and ``stdin=`` bytes."""
    monkeypatch.setenv("DRAGOMAN_SERVER", server.address)
    return invoke
