"""Jobs that are interrupted and gone on with."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman import v1
from dragoman_client.journal import lock
from tests.client.command_line import Result, invoke
from tests.client.scripted_server import DIGEST, Failure, ScriptedServer, ScriptedService, failure, serve

Dragoman = Callable[..., Result]

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


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A server that refuses one line."""
    with serve() as running:
        refusal, _ = failure(grpc.StatusCode.INVALID_ARGUMENT, "too long", reason="X")
        running.script.item_failures["refused"] = refusal
        yield running


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


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_output_cut_at_any_byte_is_finished_as_if_nothing_had_happened(
    server: ScriptedServer, dragoman: Dragoman, files: Files, form: list[str]
) -> None:
    server.script.batch_failures = [(0, failure(grpc.StatusCode.INTERNAL, "oops", reason="X"))]
    dragoman(*files.arguments(*form))
    begun = files.journal.read_bytes()
    whole_run = dragoman(*files.arguments(*form))
    whole = files.output.read_bytes()

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
    @given(st.integers(0, len(whole)))
    def check(cut: int) -> None:
        files.output.write_bytes(whole[:cut])
        files.journal.write_bytes(begun)

        result = invoke(*files.arguments("--resume", "--server", server.address, *form))

        assert files.output.read_bytes() == whole
        assert not files.journal.exists()
        assert whole_run.exit_code == 1
        num_done = whole[:cut].count(b"\n")
        assert result.exit_code == (1 if num_done < 5 else 0)  # this journal knows of no failure before

    check()


def test_process_killed_again_and_again_loses_and_repeats_nothing(
    server: ScriptedServer, dragoman: Dragoman, files: Files
) -> None:
    files.input.write_bytes(b"".join(b"line %d\n" % number for number in range(3000)))
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": path, "DRAGOMAN_SERVER": server.address}
    service = ScriptedService(server.script)
    processes: list[subprocess.Popen[bytes]] = []
    messages_left = 0

    def kill_in_the_middle(request: v1.TranslateBatchRequest) -> Iterator[v1.TranslateBatchResponse]:
        nonlocal messages_left
        messages_left -= 1
        if messages_left == 0:
            processes[-1].send_signal(signal.SIGKILL)
        yield service.answer(request, request)

    server.script.batch = kill_in_the_middle
    for messages_left in (1, 11, 4):  # noqa: B007 - counted down above
        processes.append(subprocess.Popen([*COMMAND, *files.arguments("--resume")], env=environment))
        assert processes[-1].wait(60) == -signal.SIGKILL
        assert files.journal.exists()
    killed_at = files.output.read_bytes().count(b"\n")
    server.script.batch = None
    result = dragoman(*files.arguments("--resume"))

    assert 0 < killed_at < 3000
    assert (result.exit_code, result.stderr) == (0, "")
    assert files.output.read_bytes() == b"".join(b"<line %d>\n" % number for number in range(3000))
    assert len(gone_on(server)) == 3000 - killed_at


def test_failure_says_how_far_the_job_is_and_how_to_go_on(
    server: ScriptedServer, dragoman: Dragoman, files: Files
) -> None:
    files.input.write_bytes(b"a\n" * 2000)

    result = interrupt(server, dragoman, files)

    num_done = files.output.read_bytes().count(b"\n")
    assert result.exit_code == 1
    assert result.stderr == f"Error: oops; {num_done} lines are done, go on with --resume\n"
    assert dragoman(*files.arguments("--resume")).exit_code == 0
    assert files.output.read_bytes() == b"<a>\n" * 2000
    assert len(gone_on(server)) == 2000 - num_done


def test_lines_that_failed_before_the_interruption_are_told_of_in_the_end(
    server: ScriptedServer, dragoman: Dragoman, files: Files
) -> None:
    files.input.write_bytes(b"refused\n" + b"a\n" * 2000 + b"\xff\n")
    interrupt(server, dragoman, files)
    assert files.output.read_bytes().startswith(b"\n<a>\n")

    result = dragoman(*files.arguments("--resume"))

    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].endswith("their places are empty: line 1, 2002")
    assert "refused" not in gone_on(server)


def test_resume_without_anything_to_go_on_with_begins(dragoman: Dragoman, files: Files) -> None:
    assert dragoman(*files.arguments("--resume")).exit_code == 1
    assert files.output.read_bytes().count(b"\n") == NUM_LINES


def test_finished_output_is_not_touched(dragoman: Dragoman, files: Files) -> None:
    dragoman(*files.arguments())
    whole = files.output.read_bytes()

    result = dragoman(*files.arguments("--resume"))

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: there is nothing to go on with: ")
    assert files.output.read_bytes() == whole


def test_job_without_resume_begins_anew(server: ScriptedServer, dragoman: Dragoman, files: Files) -> None:
    interrupt(server, dragoman, files, "--max-length", "9")

    dragoman(*files.arguments())

    assert len(files.output.read_bytes().decode().split("\n")) == NUM_LINES + 1
    assert not files.journal.exists()


@pytest.mark.parametrize(
    ("others", "message"),
    [
        (["--max-length", "8"], "--max-length was 9 and is 8"),
        ([], "--max-length was 9 and is not given"),
        (["--max-length", "9", "--json"], "--json was not given and is true"),
        (["--max-length", "9", "--target-prefix", "Das"], '--target-prefix was not given and is "Das"'),
        (["--max-length", "9", "--split", "none"], '--split was "sentences" and is "none"'),
    ],
)
def test_changed_options_are_refused_by_name(
    server: ScriptedServer, dragoman: Dragoman, files: Files, others: list[str], message: str
) -> None:
    interrupt(server, dragoman, files, "--max-length", "9")
    before = files.output.read_bytes(), files.journal.read_bytes()

    result = dragoman(*files.arguments("--resume", *others))

    assert result.exit_code == 1
    assert message in result.stderr
    assert (files.output.read_bytes(), files.journal.read_bytes()) == before


@pytest.mark.parametrize("changed", [INPUT + b"more\n", INPUT.replace(b"7", b"8")], ids=["grown", "edited"])
def test_changed_input_is_refused(
    server: ScriptedServer, dragoman: Dragoman, files: Files, changed: bytes
) -> None:
    interrupt(server, dragoman, files)
    before = files.output.read_bytes()
    files.input.write_bytes(changed)

    result = dragoman(*files.arguments("--resume"))

    assert result.exit_code == 1
    assert "the input is not what it was" in result.stderr
    assert files.output.read_bytes() == before


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


def away(num_calls: int) -> list[Failure]:
    """Returns the failures of so many calls that gRPC itself has no more patience for."""
    trailers = (("grpc-retry-pushback-ms", "1"),)
    unavailable = failure(grpc.StatusCode.UNAVAILABLE, "gone", retry_seconds=0.001, trailers=trailers)
    return [unavailable] * 4 * num_calls


def test_server_that_goes_away_before_it_says_what_its_models_are_is_waited_for(
    server: ScriptedServer, dragoman: Dragoman, files: Files
) -> None:
    files.input.write_bytes(b"a\n" * 2000)
    interrupt(server, dragoman, files)
    server.script.model_failures = away(3)

    result = dragoman(*files.arguments("--resume"))

    assert (result.exit_code, result.stderr) == (0, "")
    assert not server.script.model_failures
    assert files.output.read_bytes() == b"<a>\n" * 2000


def test_server_that_does_not_say_what_its_models_are_is_not_waited_for_without_end(
    server: ScriptedServer, dragoman: Dragoman, files: Files
) -> None:
    server.script.model_failures = away(3)

    result = dragoman(*files.arguments("--max-outage", "0"))

    assert result.exit_code == 1
    assert result.stderr.endswith(" is unavailable: gone; 0 lines are done, go on with --resume\n")


def test_output_that_grew_is_refused(server: ScriptedServer, dragoman: Dragoman, files: Files) -> None:
    interrupt(server, dragoman, files)
    files.output.write_bytes(b"x\n" * (NUM_LINES + 1))

    result = dragoman(*files.arguments("--resume"))

    assert result.exit_code == 1
    assert "more lines than the input has" in result.stderr


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
