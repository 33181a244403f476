from pathlib import Path

import grpc
import pytest

from tests.client.commands.file_jobs import Files
from tests.client.failures import failure
from tests.client.scripted_server import ScriptedServer


@pytest.fixture
def files(tmp_path: Path, server: ScriptedServer) -> Files:
    """A file to translate, of which the server refuses a line."""
    refusal, _ = failure(grpc.StatusCode.INVALID_ARGUMENT, "too long", reason="X")
    server.script.item_failures["refused"] = refusal
    return Files(tmp_path)
