"""Jobs from a file into another."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator

from dragoman import v1
from dragoman_client.journal import lock
from tests.client.command_line import Dragoman
from tests.client.commands.file_jobs import (
    COMMAND,
    NUM_LINES,
    Files,
)
from tests.client.scripted_server import ScriptedServer, ScriptedService


def test_job_that_is_done_leaves_a_line_for_each_line_and_no_journal(
    dragoman: Dragoman, files: Files
) -> None:
    result = dragoman(*files.arguments())

    lines = files.output.read_bytes().decode().split("\n")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        f"Error: 2 of {NUM_LINES} lines could not be translated; their places are empty: line 4, 5"
    )
    assert lines[:7] == ["<first>", "", "  ", "", "", "<\0>", "<line 0>"]
    assert lines[-5:] == ["<ü\u2028🙂>", "", "", "<last, without an end>", ""]
    assert len(lines) == NUM_LINES + 1
    assert not files.journal.exists()


def test_output_that_another_process_writes_is_refused(dragoman: Dragoman, files: Files) -> None:
    with files.output.open("wb") as other:
        lock(other, files.output)
        result = dragoman(*files.arguments())

    assert result.exit_code == 1
    assert "is being written by another process" in result.stderr
    assert files.output.read_bytes() == b""


def test_job_whose_journal_cannot_be_written_goes_on_with_a_warning(dragoman: Dragoman, files: Files) -> None:
    files.input.write_bytes(b"a\n")
    files.journal.with_name(files.journal.name + ".new").mkdir()

    result = dragoman(*files.arguments())

    assert result.exit_code == 0
    assert "cannot be gone on with" in result.stderr
    assert files.output.read_bytes() == b"<a>\n"


def test_full_disk_says_how_to_go_on(server: ScriptedServer, dragoman: Dragoman, files: Files) -> None:
    files.input.write_bytes(b"some line\n" * 3000)
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": path, "DRAGOMAN_SERVER": server.address}

    full = subprocess.run(
        [*COMMAND, *files.arguments()],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)),  # as good as a full disk
        env=environment,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    num_done = files.output.read_bytes().count(b"\n")
    resumed = dragoman(*files.arguments("--resume"))

    assert full.returncode == 1
    assert full.stderr.decode() == (
        f"Error: File too large; {num_done} lines are done, go on with --resume\n"
    )
    assert resumed.exit_code == 0
    assert files.output.read_bytes() == b"<some line>\n" * 3000


def test_interrupt_of_a_file_says_how_to_go_on(server: ScriptedServer, files: Files) -> None:
    files.input.write_bytes(b"a\n" * 3000)
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": path, "DRAGOMAN_SERVER": server.address}
    service = ScriptedService(server.script)
    processes: list[subprocess.Popen[bytes]] = []

    def interrupt_at_once(request: v1.TranslateBatchRequest) -> Iterator[v1.TranslateBatchResponse]:
        server.script.batch = lambda request: iter(())  # and no more answers
        yield service.answer(request, request)
        processes[0].send_signal(signal.SIGINT)

    server.script.batch = interrupt_at_once
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would ignore it
    processes.append(
        subprocess.Popen([*COMMAND, *files.arguments()], env=environment, stderr=subprocess.PIPE)
    )
    signal.signal(signal.SIGINT, ours)
    _, errors = processes[0].communicate(timeout=60)

    num_done = files.output.read_bytes().count(b"\n")
    assert processes[0].returncode == 130
    assert errors.decode() == f"Interrupted; {num_done} lines are done, go on with --resume\n"
    assert files.journal.exists()


def test_json_marks_the_place_of_a_line_that_failed(dragoman: Dragoman, files: Files) -> None:
    dragoman(*files.arguments("--json"))

    documents = [json.loads(line) for line in files.output.read_bytes().split(b"\n")[:-1]]
    assert len(documents) == NUM_LINES
    assert [("error" in document) for document in documents[:6]] == [False, False, False, True, True, False]
