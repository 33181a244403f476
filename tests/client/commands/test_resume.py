"""Jobs that are interrupted and gone on with."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman import v1
from tests.client.command_line import Dragoman, invoke
from tests.client.commands.file_jobs import (
    COMMAND,
    INPUT,
    NUM_LINES,
    Files,
    gone_on,
    interrupt,
)
from tests.client.failures import failure
from tests.client.scripted_server import ScriptedServer, ScriptedService


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


def test_doubtful_lines_of_every_run_are_told_of_in_the_end(
    server: ScriptedServer, dragoman: Dragoman, files: Files
) -> None:
    files.input.write_bytes(b"a\n" * 2000)
    server.script.finish_reason = v1.FinishReason.FINISH_REASON_LENGTH
    server.script.warnings = [v1.Warning(kind=v1.WarningKind.WARNING_KIND_REPETITION)]
    interrupt(server, dragoman, files)
    server.script.warnings = []
    files.output.write_bytes(b"<a>\n" * 5)  # as if the others had been lost

    interrupt(server, dragoman, files, "--resume")
    result = dragoman(*files.arguments("--resume"))

    first = "line 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …"
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        f"Warning: 2,000 of the translations reached the length limit and may be cut: {first}",
        "Warning: 5 of the translations may have repetitions: line 1, 2, 3, 4, 5",
    ]


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


def test_output_that_grew_is_refused(server: ScriptedServer, dragoman: Dragoman, files: Files) -> None:
    interrupt(server, dragoman, files)
    files.output.write_bytes(b"x\n" * (NUM_LINES + 1))

    result = dragoman(*files.arguments("--resume"))

    assert result.exit_code == 1
    assert "more lines than the input has" in result.stderr
