"""What the operating system sees of the command: streams, signals, exit codes."""

import os
import pty
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman import v1
from tests.client.command_line import Dragoman
from tests.client.scripted_server import ScriptedServer


@pytest.fixture
def environment(server: ScriptedServer) -> dict[str, str]:
    path = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": path, "DRAGOMAN_SERVER": server.address, "TERM": "xterm-256color"}


COMMAND = [sys.executable, "-m", "dragoman_client"]


def test_standard_input_to_standard_output(environment: dict[str, str]) -> None:
    result = subprocess.run(
        [*COMMAND, "translate"],
        input="eins\nzwei ü".encode(),
        capture_output=True,
        env=environment,
        timeout=30,
    )

    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.decode() == "<eins>\n<zwei ü>\n"


def test_output_is_utf8_in_every_locale(environment: dict[str, str]) -> None:
    environment |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    translated = subprocess.run(
        [*COMMAND, "translate"], input="ü".encode(), capture_output=True, env=environment, timeout=30
    )
    drawn = subprocess.run([*COMMAND, "attention", "a b"], capture_output=True, env=environment, timeout=30)

    assert translated.stdout.decode() == "<ü>\n"
    assert drawn.returncode == 0


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [("translate <&-", 0), ("translate Hi >&-", 0), ("models >&-", 0), ("bad 2>&-", 2)],
)
def test_streams_that_are_closed_are_empty(environment: dict[str, str], command: str, exit_code: int) -> None:
    line = f"exec {shlex.join(COMMAND)} {command}"

    result = subprocess.run(["sh", "-c", line], capture_output=True, env=environment, timeout=30)

    assert (result.returncode, result.stdout, result.stderr) == (exit_code, b"", b"")


@pytest.mark.parametrize("buffering", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_full_disk_exits_1_with_the_reason(environment: dict[str, str], buffering: dict[str, str]) -> None:
    environment.pop("PYTHONUNBUFFERED", None)
    environment.update(buffering)
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [*COMMAND, "translate", "Hi"], stdout=full, stderr=subprocess.PIPE, env=environment, timeout=30
        )

    assert result.returncode == 1
    assert result.stderr == b"Error: No space left on device\n"


def test_bytes_that_are_no_text_exit_2(environment: dict[str, str]) -> None:
    result = subprocess.run(
        [*map(os.fsencode, COMMAND), b"translate", b"\xff"], capture_output=True, env=environment, timeout=30
    )

    assert result.returncode == 2
    assert b"lone surrogate" in result.stderr
    assert b"Traceback" not in result.stderr


def test_reader_that_has_seen_enough_is_left_in_peace(environment: dict[str, str], tmp_path: Path) -> None:
    many = tmp_path / "many"
    many.write_bytes(b"some line\n" * 20_000)
    process = subprocess.Popen(
        [*COMMAND, "translate", "--input", str(many)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert process.stdout
    assert process.stderr
    assert process.stdout.readline() == b"<some line>\n"
    process.stdout.close()

    assert process.wait(30) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize(
    "arguments", [["models"], ["models", "--json"], ["attention", "a b"], ["translate", "a"]]
)
def test_reader_that_is_gone_already_is_left_in_peace(
    environment: dict[str, str], arguments: list[str]
) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    result = subprocess.run(
        [*COMMAND, *arguments], stdout=write_end, stderr=subprocess.PIPE, env=environment, timeout=30
    )
    os.close(write_end)

    assert (result.returncode, result.stderr) == (141, b"")


def test_interrupt_is_quiet_and_exits_130(environment: dict[str, str]) -> None:
    # What a background job starts would ignore Ctrl-C as it does itself.
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [*COMMAND, "translate"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        bufsize=0,
    )
    signal.signal(signal.SIGINT, ours)
    assert process.stdin
    assert process.stdout
    process.stdin.write(b"first\n")
    assert process.stdout.readline() == b"<first>\n"  # it runs, and waits for the next line
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)

    assert process.returncode == 130
    assert errors == b""


def test_person_at_a_terminal_gets_each_answer_at_once(environment: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "translate"], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    os.close(theirs)
    assert process.stdout
    assert process.stderr
    with os.fdopen(ours, "wb", buffering=0) as keyboard:
        for text in (b"first", b"second"):
            keyboard.write(text + b"\n")
            assert process.stdout.readline() == b"<" + text + b">\n"
        keyboard.write(b"\x04")
        assert process.wait(30) == 0
    assert b"end with Ctrl-D" in process.stderr.read()
    process.stdout.close()
    process.stderr.close()


def test_person_at_a_terminal_sees_a_translation_while_it_is_made(
    server: ScriptedServer, environment: dict[str, str]
) -> None:
    seen = threading.Event()

    def wait_for_reader(request: v1.StreamTranslateTextRequest) -> Iterator[v1.StreamTranslateTextResponse]:
        yield v1.StreamTranslateTextResponse(delta=v1.TextDelta(text="first"))
        assert seen.wait(30)
        yield v1.StreamTranslateTextResponse(delta=v1.TextDelta(text=" second"))
        translation = v1.Translation(text="first second")
        result = v1.TranslateTextResponse(translations=[translation])
        yield v1.StreamTranslateTextResponse(result=result)

    server.script.stream = wait_for_reader
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*COMMAND, "translate", "Hi"], stdout=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while b"first" not in shown:
        shown += os.read(ours, 100)
    seen.set()
    rest = _read_all(ours)

    assert process.wait(30) == 0
    assert shown.decode() + rest == "first second\r\n"


def test_bar_is_drawn_on_a_terminal_and_only_there(environment: dict[str, str], tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"line\n" * 300)
    ours, theirs = pty.openpty()
    process = subprocess.run(
        [*COMMAND, "translate", "--input", str(lines)],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment,
        timeout=30,
    )
    os.close(theirs)
    shown = _read_all(ours)

    assert process.stdout == b"<line>\n" * 300
    assert "100%" in shown
    assert "sentences/s" in shown
    assert "300 lines" in shown
    last = shown[shown.rindex("sentences/s") :]
    assert "in " in last
    assert "left" not in last


def _read_all(descriptor: int) -> str:
    data = b""
    with os.fdopen(descriptor, "rb", buffering=0) as terminal:
        try:
            while piece := terminal.read(1 << 16):
                data += piece
        except OSError:  # Linux says the end of a pseudo-terminal so
            pass
    return data.decode()


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["translate", "--help"], ["--version"]])
def test_help_and_version_go_to_standard_output(dragoman: Dragoman, arguments: list[str]) -> None:
    result = dragoman(*arguments)

    assert (result.exit_code, result.stderr) == (0, "")
    assert b"dragoman" in result.stdout


@pytest.mark.parametrize("command", ["translate", "attention", "score", "models", "status"])
def test_help_names_the_environment_twin_of_every_option(dragoman: Dragoman, command: str) -> None:
    shown = dragoman(command, "--help").stdout.decode()

    options = [line for line in shown.splitlines() if line.startswith("  --")]
    assert len(options) > 4
    assert " ".join(shown.split()).replace(" ", "").count("envvar:DRAGOMAN_") == len(options)


@pytest.mark.parametrize("arguments", [["no-such-command"], ["--no-such-option"], []])
def test_bad_usage_exits_2(dragoman: Dragoman, arguments: list[str]) -> None:
    assert dragoman(*arguments).exit_code == 2
