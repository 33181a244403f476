from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from dragoman_model.checkpoint import LoadedModel, load_model
from dragoman_server import event_loop
from tests.integration.servers import RunningServer, serving
from tests.models import make_tiny_model


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Runs the tests on the event loop that the server is served with."""
    return {"as served": event_loop.new_event_loop}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(make_tiny_model(tmp_path_factory.mktemp("models") / "en-de"), device="cpu")


@pytest.fixture
async def server(model: LoadedModel) -> AsyncIterator[RunningServer]:
    async with serving(model, max_text_characters=2000) as server:
        yield server
