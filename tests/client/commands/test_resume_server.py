"""Jobs that are gone on with on a server that was away, or serves another model."""

from collections.abc import Iterator

import grpc
import pytest

from dragoman import v1
from tests.client.commands.file_jobs import Dragoman, Files, interrupt
from tests.client.failures import failure
from tests.client.scripted_server import DIGEST, ScriptedServer, ScriptedService


def test_another_model_is_refused_before_it_adds_a_line(
    server: ScriptedServer, dragoman: Dragoman, files: Files
) -> None:
    files.input.write_bytes(b"a\n" * 2000)
    interrupt(server, dragoman, files)
    before = files.output.read_bytes()
    server.script.digest = "cd" * 32

    result = dragoman(*files.arguments("--resume"))

    assert before
    assert result.exit_code == 1
    assert f"en-de (cdcdcdcdcdcd), but what is there is by en-de ({DIGEST[:12]})" in result.stderr
    assert files.output.read_bytes() == before
    server.script.digest = DIGEST
    assert dragoman(*files.arguments("--resume")).exit_code == 0
    assert files.output.read_bytes() == b"<a>\n" * 2000


def test_another_precision_is_refused_before_it_adds_a_line(
    server: ScriptedServer, dragoman: Dragoman, files: Files
) -> None:
    files.input.write_bytes(b"a\n" * 2000)
    interrupt(server, dragoman, files)
    before = files.output.read_bytes()
    server.script.precision = "int8"

    result = dragoman(*files.arguments("--resume"))

    assert before
    assert result.exit_code == 1
    assert "translates in int8, but what is there is in float32; serve that" in result.stderr
    assert files.output.read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "int8"}, "translates in int8, but what is there is in float32; serve that"),
        ({"digest": "cd" * 32}, f"en-de (cdcdcdcdcdcd), but what is there is by en-de ({DIGEST[:12]})"),
    ],
    ids=["precision", "digest"],
)
def test_server_that_comes_back_with_another_model_adds_no_line(
    server: ScriptedServer, dragoman: Dragoman, files: Files, changes: dict[str, str], message: str
) -> None:
    files.input.write_bytes(b"a\n" * 2000)
    script, service = server.script, ScriptedService(server.script)

    def answer(request: v1.TranslateBatchRequest) -> Iterator[v1.TranslateBatchResponse]:
        if len(script.batch_calls) == 1:
            yield service.answer(request, request)
        else:
            for name, value in changes.items():
                setattr(script, name, value)
            yield service.answer(request, request)

    script.batch = answer
    script.batch_failures = [(1, failure(grpc.StatusCode.UNAVAILABLE, "gone", retry_seconds=0.001))]

    result = dragoman(*files.arguments())

    num_done = len(script.batch_calls[0][0].items)
    assert len(script.batch_calls) == 2
    assert result.exit_code == 1
    assert message in result.stderr
    assert files.output.read_bytes() == b"<a>\n" * num_done
    for name in changes:
        setattr(script, name, {"precision": "float32", "digest": DIGEST}[name])
    script.batch = None
    assert dragoman(*files.arguments("--resume")).exit_code == 0
    assert files.output.read_bytes() == b"<a>\n" * 2000
