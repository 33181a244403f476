"""A text a line: what goes in comes out in its order, whatever happens to a line or to the server."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman import v1
from dragoman_client.__main__ import run
from tests.client.command_line import Dragoman, invoke
from tests.client.failures import failure
from tests.client.scripted_server import ScriptedServer, ScriptedService


def test_standard_input_gives_a_line_for_a_line(dragoman: Dragoman) -> None:
    data = b"\xef\xbb\xbfone\r\n\n  \ntw\xe2\x80\xa8o\n\0\nlast"

    result = dragoman("translate", stdin=data)

    assert result.lines == ["<one>", "", "  ", "<tw\u2028o>", "<\0>", "<last>"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])), max_size=40)
)
def test_as_many_lines_come_out_as_went_in_whatever_they_hold(
    server: ScriptedServer, lines: list[str]
) -> None:
    data = "".join(f"{line}\r\n" for line in lines).encode()

    result = invoke("translate", "--server", server.address, stdin=b"\xef\xbb\xbf" + data if lines else data)

    assert result.exit_code == 0
    assert result.lines == [f"<{line}>" if line.strip() else line for line in lines]


def test_line_end_that_a_model_makes_up_does_not_split_a_line(
    server: ScriptedServer, dragoman: Dragoman
) -> None:
    server.script.translate = lambda text: f"{text}\nmore"

    assert dragoman("translate", stdin=b"a\nb\n").lines == ["a more", "b more"]


def test_file_is_translated_into_a_file(dragoman: Dragoman, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(b"".join(b"line %d\n" % number for number in range(700)))

    result = dragoman("translate", "--input", str(source), "--output", str(target))

    assert (result.exit_code, result.stdout) == (0, b"")
    assert target.read_bytes() == b"".join(b"<line %d>\n" % number for number in range(700))


def test_many_translations_that_may_be_cut_are_said_once(server: ScriptedServer, dragoman: Dragoman) -> None:
    server.script.finish_reason = v1.FinishReason.FINISH_REASON_LENGTH

    [warning] = dragoman("translate", stdin=b"a\n" * 1500).stderr.splitlines()

    assert warning.startswith("Warning: 1,500 of the translations")
    assert warning.endswith("line 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …")


def test_line_that_cannot_be_translated_is_named_and_leaves_its_place(
    server: ScriptedServer, dragoman: Dragoman
) -> None:
    status, _ = failure(grpc.StatusCode.INVALID_ARGUMENT, "300 tokens, at most 256", reason="X")
    server.script.item_failures["bad"] = status

    result = dragoman("translate", stdin=b"one\nthr\xffee\nbad\n" + b"x" * 1_048_577 + b"\nfive\n")

    assert result.exit_code == 1
    assert result.lines == ["<one>", "", "", "", "<five>"]
    assert result.stderr.splitlines() == [
        "line 2: not UTF-8: byte 4 of the line is 0xff; convert the file, for example with iconv",
        "line 3: 300 tokens, at most 256",
        "line 4: longer than 1,048,576 bytes; split it",
        "Error: 3 of 5 lines could not be translated; their places are empty: line 2, 3, 4",
    ]


def test_line_that_cannot_be_translated_is_marked_in_json(server: ScriptedServer, dragoman: Dragoman) -> None:
    status, _ = failure(grpc.StatusCode.INTERNAL, "oops")
    server.script.item_failures["bad"] = status

    result = dragoman("translate", "--json", stdin=b"one\nbad\n\xff\n")

    assert result.exit_code == 1
    good, bad, unreadable = map(json.loads, result.lines)
    assert good["text"] == "<one>"
    assert bad == {"source": "bad", "error": {"code": "INTERNAL", "message": "oops"}}
    assert unreadable["source"] is None
    assert unreadable["error"]["code"] == "INVALID_ARGUMENT"


def test_failure_of_the_whole_call_says_how_far_the_job_is(
    server: ScriptedServer, dragoman: Dragoman
) -> None:
    server.script.batch_failures = [(1, failure(grpc.StatusCode.NOT_FOUND, "no such model", reason="X"))]

    early = dragoman("translate", stdin=b"a\n" * 2000)

    assert early.exit_code == 1
    assert early.lines == ["<a>"] * len(early.lines)
    assert early.stderr == f"Error: no such model; lines 1 to {len(early.lines)} are done\n"


def test_input_is_read_no_further_than_a_little_ahead_of_the_answers(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counted(io.RawIOBase):
        given = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            size = min(len(buffer), 3_000_000 - self.given)
            buffer[:size] = b"x" * size
            for end in range(999 - self.given % 1000, size, 1000):
                buffer[end] = 10
            self.given += size
            return size

    source, ahead, answered = Counted(), [], 0
    service = ScriptedService(server.script)

    def watch(request: v1.TranslateBatchRequest) -> Iterator[v1.TranslateBatchResponse]:
        nonlocal answered
        ahead.append(source.given - 1000 * answered)
        answered += len(request.items)
        yield service.answer(request, request)

    server.script.batch = watch
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(source)))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, write_through=True))

    assert run(["translate", "--server", server.address]) == 0
    assert output.getvalue() == (b"<" + b"x" * 999 + b">\n") * 3000
    assert max(ahead) <= 512 * 1000 + 4 * 65_536  # what is under way, and what the reading thread holds


def test_server_that_goes_away_is_waited_for_and_given_up_in_the_end(
    server: ScriptedServer, dragoman: Dragoman
) -> None:
    away = failure(grpc.StatusCode.UNAVAILABLE, "going away", reason="DRAINING", retry_seconds=0.01)
    server.script.batch_failures = [(1, away)] * 3
    back = dragoman("translate", stdin=b"a\n" * 3000)
    server.script.batch_failures = [(1, away), *[(0, away)] * 99]
    gone = dragoman("translate", "--max-outage", "0.05", stdin=b"a\n" * 3000)

    assert (back.exit_code, back.lines, back.stderr) == (0, ["<a>"] * 3000, "")
    assert gone.exit_code == 1
    assert gone.stderr.startswith("Error: going away; lines 1 to ")


def test_nothing_in_gives_nothing_out(dragoman: Dragoman) -> None:
    result = dragoman("translate", stdin=b"")

    assert (result.exit_code, result.stdout, result.stderr) == (0, b"", "")


@pytest.mark.parametrize("name", ["no-such-file", ".", "no/such/file"])
def test_input_that_cannot_be_opened_exits_1_and_makes_no_output(
    dragoman: Dragoman, tmp_path: Path, name: str
) -> None:
    output = tmp_path / "out"

    result = dragoman("translate", "--input", str(tmp_path / name), "--output", str(output))

    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {tmp_path}")
    assert not output.exists()


@pytest.mark.parametrize("name", ["text", "text.journal", "text.journal.new"])
def test_input_is_never_overwritten(dragoman: Dragoman, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("precious\n")

    result = dragoman("translate", "--input", str(path), "--output", str(tmp_path / "text"))

    assert result.exit_code == 2
    assert "would overwrite --input" in result.stderr
    assert path.read_text() == "precious\n"
