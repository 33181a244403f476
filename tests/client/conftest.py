from collections.abc import Iterator

import pytest

from tests.client.bulk_runs import Run, run_asyncio, run_blocking
from tests.client.command_line import Dragoman, invoke
from tests.client.scripted_server import ScriptedServer, serve


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A fresh server with a fresh script."""
    with serve() as running:
        yield running


@pytest.fixture
def dragoman(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> Dragoman:
    """The command line against the server: call it with arguments and ``stdin=`` bytes."""
    monkeypatch.setenv("DRAGOMAN_SERVER", server.address)
    return invoke


@pytest.fixture(params=[run_blocking, run_asyncio])
def run(request: pytest.FixtureRequest, server: ScriptedServer) -> Run:
    """Translates in bulk with either client: texts and settings in, results out."""
    return lambda texts, **settings: request.param(server, texts, **settings)
