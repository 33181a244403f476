"""A file to translate, and jobs that are interrupted."""

import sys
from collections.abc import Iterator
from pathlib import Path

import grpc

from dragoman import v1
from tests.client.command_line import Dragoman, Result
from tests.client.failures import failure
from tests.client.scripted_server import ScriptedServer, ScriptedService

INPUT = (
    b"\xef\xbb\xbffirst\r\n\n  \nbad \xff line\nrefused\n\0\n"
    + b"".join(b"line %d\r\n" % number for number in range(30))
    + "ü\u2028🙂\n\n\nlast, without an end".encode()
)


NUM_LINES = INPUT.count(b"\n") + 1


COMMAND = [sys.executable, "-m", "dragoman_client"]


class Files:
    """An input, and what a job makes of it."""

    def __init__(self, folder: Path) -> None:
        self.input = folder / "in.txt"
        self.output = folder / "out.txt"
        self.journal = folder / "out.txt.journal"
        self.input.write_bytes(INPUT)

    def arguments(self, *others: str) -> list[str]:
        return ["translate", "--input", str(self.input), "--output", str(self.output), *others]


def interrupt(server: ScriptedServer, dragoman: Dragoman, files: Files, *others: str) -> Result:
    """Runs the job until the server fails, with one answer left to give, and returns how it ended."""
    service = ScriptedService(server.script)

    def answer_but_one(request: v1.TranslateBatchRequest) -> Iterator[v1.TranslateBatchResponse]:
        yield service.answer(v1.TranslateBatchRequest(items=request.items[:-1]), request)

    server.script.batch = answer_but_one
    server.script.batch_failures = [(1, failure(grpc.StatusCode.INTERNAL, "oops", reason="X"))]
    result = dragoman(*files.arguments(*others))
    server.script.batch = None
    return result


def gone_on(server: ScriptedServer) -> list[str]:
    """The texts of the last call."""
    return [item.text for message in server.script.batch_calls[-1] for item in message.items]
