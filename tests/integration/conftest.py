from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dragoman_model.checkpoint import LoadedModel, load_model
from tests.integration.servers import RunningServer, serving
from tests.models import make_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(make_tiny_model(tmp_path_factory.mktemp("models") / "en-de"), device="cpu")


@pytest.fixture
async def server(model: LoadedModel) -> AsyncIterator[RunningServer]:
    async with serving(model, max_text_characters=2000) as server:
        yield server
