import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman import v1
from dragoman_client.__main__ import run
from tests.client.command_line import Result, invoke
from tests.client.scripted_server import ScriptedServer, ScriptedService, failure

Dragoman = Callable[..., Result]


def test_each_argument_is_a_text(dragoman: Dragoman) -> None:
    result = dragoman("translate", "Hello there", "", "two\nlines")

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.decode() == "<Hello there>\n\n<two\nlines>\n"


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


def test_links_stand_behind_each_translation_as_pairs_of_word_numbers(dragoman: Dragoman) -> None:
    result = dragoman("translate", "--alignments", "auto", stdin=b"one two  three\n\nfour\n")

    assert result.lines == ["<one two  three> ||| 1-1 2-2", " ||| ", "<four> ||| "]


def test_links_stand_behind_each_text(dragoman: Dragoman) -> None:
    result = dragoman("translate", "--alignments", "shifted", "one two", "three four")

    assert result.lines == ["<one two> ||| 1-1", "<three four> ||| 1-1"]


def test_links_as_json_have_spans(dragoman: Dragoman) -> None:
    [line] = dragoman("translate", "--alignments", "naive", "--json", "one two").lines

    assert json.loads(line)["word_links"][1] == {
        "source": {"start": 4, "end": 7},
        "target": {"start": 5, "end": 9},
        "probability": 0.5,
    }


def test_links_of_a_translation_that_is_shown_while_it_grows_are_refused(dragoman: Dragoman) -> None:
    result = dragoman("translate", "--alignments", "auto", "--stream", "one two")

    assert result.exit_code == 2
    assert "leave --stream off" in result.stderr


def test_file_is_translated_into_a_file(dragoman: Dragoman, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(b"".join(b"line %d\n" % number for number in range(700)))

    result = dragoman("translate", "--input", str(source), "--output", str(target))

    assert (result.exit_code, result.stdout) == (0, b"")
    assert target.read_bytes() == b"".join(b"<line %d>\n" % number for number in range(700))


def test_json_is_one_object_a_line(dragoman: Dragoman) -> None:
    result = dragoman("translate", "--json", "--tokens", stdin="a\u2028ü\n\n".encode())

    first, second = map(json.loads, result.lines)
    assert first["source"] == "a\u2028ü"
    assert first["text"] == "<a\u2028ü>"
    assert first["tokens"][0] == {
        "piece": "▁<a\u2028ü>",
        "log_probability": -0.25,
        "span": {"start": 0, "end": 5},
    }
    assert (second["text"], second["finish_reason"], second["score"]) == ("", "BLANK", None)
    assert len(result.stdout.decode().splitlines()) == 2


REPETITION = v1.Warning(
    kind=v1.WarningKind.WARNING_KIND_REPETITION,
    message="A word stands 2 times in a row in the translation.",
    target=v1.TextSpan(start=1, end=8),
    value=2,
)
UNKNOWN = v1.Warning(message="Something else.")


def test_warnings_are_told_of_on_standard_error_alone(server: ScriptedServer, dragoman: Dragoman) -> None:
    server.script.warnings = [UNKNOWN, REPETITION, REPETITION]

    texts = dragoman("translate", "bad bad", "", "not good")
    lines = dragoman("translate", stdin=b"bad\n" * 12)

    assert (texts.exit_code, texts.stdout.decode()) == (0, "<bad bad>\n\n<not good>\n")
    assert texts.stderr.splitlines() == [
        "Warning: 2 of the translations may be bad: text 1, 3",
        "Warning: 2 of the translations may have repetitions: text 1, 3",
    ]
    assert lines.lines == ["<bad>"] * 12
    assert "Warning: 12 of the translations may have repetitions: line 1, 2, 3, 4, 5" in lines.stderr


def test_warnings_are_in_the_json(server: ScriptedServer, dragoman: Dragoman) -> None:
    server.script.warnings = [UNKNOWN, REPETITION]

    result = dragoman("translate", "--json", "bad bad")

    assert json.loads(result.lines[0])["warnings"] == [
        {"kind": "UNSPECIFIED", "message": "Something else.", "source": None, "target": None, "value": 0.0},
        {
            "kind": "REPETITION",
            "message": "A word stands 2 times in a row in the translation.",
            "source": None,
            "target": {"start": 1, "end": 8},
            "value": 2.0,
        },
    ]


def test_json_goes_into_the_output_file_too(dragoman: Dragoman, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"

    assert dragoman("translate", "Hi", "--json", "--output", str(target)).stdout == b""
    assert json.loads(target.read_text())["text"] == "<Hi>"


def test_tokens_stand_below_the_translation(dragoman: Dragoman) -> None:
    lines = dragoman("translate", "--tokens", "Hi").lines

    assert lines[0] == "<Hi>"
    assert [line.split() for line in lines[1:]] == [["77.9%", "▁<Hi>"], ["88.2%", "</s>"]]


def test_options_reach_the_server(server: ScriptedServer, dragoman: Dragoman) -> None:
    dragoman(
        "translate", "Hi", "--max-length", "9", "--source-language", "en-GB", "--target-language", "de",
        "--model", "en-de", "--split", "none",
    )  # fmt: skip

    [request] = server.script.requests
    assert request.options == v1.DecodingOptions(max_decoding_length=9)
    assert (request.source_language_code, request.target_language_code) == ("en-GB", "de")
    assert (request.model, request.split) == ("en-de", v1.TextSplit.TEXT_SPLIT_NONE)


def test_options_come_from_the_environment(
    server: ScriptedServer, dragoman: Dragoman, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_MAX_LENGTH", "7")
    monkeypatch.setenv("DRAGOMAN_MODEL_NAME", "xx")

    dragoman("translate", "Hi")

    assert server.script.requests[0].options.max_decoding_length == 7
    assert server.script.requests[0].model == "xx"


def test_translation_that_may_be_cut_is_said_so(server: ScriptedServer, dragoman: Dragoman) -> None:
    server.script.finish_reason = v1.FinishReason.FINISH_REASON_LENGTH

    result = dragoman("translate", stdin=b"\na\n")

    assert result.exit_code == 0
    assert result.stderr == "Warning: 1 of the translations reached the length limit and may be cut: line 2\n"


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


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["Hi", "--input", "file"], "give TEXT or --input, not both"),
        (["Hi", "--resume"], "--resume goes with --input FILE and --output FILE"),
        (["--resume"], "--resume goes with --input FILE and --output FILE"),
        (["--stream"], "--stream goes with TEXT"),
        (["--tokens"], "with a file add --json"),
        (["--max-length", "0", "Hi"], "0 is not in the range"),
        (["--max-length", "many", "Hi"], "'many' is not a valid integer"),
        (["--split", "words", "Hi"], "'words' is not one of"),
        (["--server", "nowhere", "Hi"], "'nowhere' is not HOST:PORT"),
        (["--timeout", "0", "Hi"], "not in the range"),
        (["--timeout", "nan", "Hi"], "not a number of seconds"),
        (["--no-such-option"], "No such option"),
        (["\udcff"], "TEXT number 1 holds the lone surrogate U+DCFF"),
    ],
)
def test_bad_usage_exits_2_with_a_sentence(dragoman: Dragoman, arguments: list[str], reason: str) -> None:
    result = dragoman("translate", *arguments)

    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


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


def test_missing_server_exits_1_with_what_to_do(dragoman: Dragoman) -> None:
    result = dragoman("translate", "--server", "127.0.0.1:1", "Hi")

    assert result.exit_code == 1
    assert result.stderr == "Error: no server answers at 127.0.0.1:1; start one with `dragoman-server`\n"


def test_decoding_options_reach_the_server(server: ScriptedServer, dragoman: Dragoman) -> None:
    dragoman(
        "translate", "Hi", "--beam-size", "4", "--num-hypotheses", "2", "--length-penalty", "0.5",
        "--repetition-penalty", "1.5", "--no-repeat-ngram-size", "3", "--min-length", "2", "--sampling-topk", "0",
        "--sampling-topp", "0.5", "--sampling-temperature", "2", "--no-keep-numbers", "--seed", "-7",
        "--target-prefix", "Das",
    )  # fmt: skip

    [request] = server.script.requests
    assert request.options == v1.DecodingOptions(
        beam_size=4,
        num_hypotheses=2,
        length_penalty=0.5,
        repetition_penalty=1.5,
        no_repeat_ngram_size=3,
        min_decoding_length=2,
        sampling_topk=0,
        sampling_topp=0.5,
        sampling_temperature=2,
        keep_numbers=False,
        seed=-7,
    )
    assert list(request.target_prefixes) == ["Das"]


def test_several_translations_of_a_line_need_json(dragoman: Dragoman) -> None:
    result = dragoman("translate", "--num-hypotheses", "2", stdin=b"Hi\n")

    assert result.exit_code == 2
    assert "--json" in result.stderr


def test_several_translations_of_a_text_are_shown_best_first_with_their_scores(dragoman: Dragoman) -> None:
    result = dragoman("translate", "Hi", "--beam-size", "2", "--num-hypotheses", "2")

    assert result.lines == ["<Hi>", "   -0.5000  <Hi>", "   -1.0000  <Hi>'"]


def test_text_is_streamed_when_asked_for(server: ScriptedServer, dragoman: Dragoman) -> None:
    result = dragoman("translate", "--stream", "--target-prefix", "Das", "one two", "three", "")

    assert (result.exit_code, result.stdout, result.stderr) == (0, b"<one two>\n<three>\n\n", "")
    assert [request.text for request in server.script.stream_requests] == ["one two", "three", ""]
    assert {request.target_prefix for request in server.script.stream_requests} == {"Das"}


def test_text_is_not_streamed_into_a_pipe_unless_asked_for(
    server: ScriptedServer, dragoman: Dragoman
) -> None:
    dragoman("translate", "one")

    assert server.script.stream_requests == []


def test_streamed_text_has_below_it_what_was_asked_for(dragoman: Dragoman) -> None:
    streamed = dragoman(
        "translate", "--stream", "--tokens", "--beam-size", "2", "--num-hypotheses", "2", "Hi you"
    )
    whole = dragoman("translate", "--tokens", "--beam-size", "2", "--num-hypotheses", "2", "Hi you")

    assert streamed.lines == whole.lines


def test_streamed_json_is_each_piece_and_then_the_translation(dragoman: Dragoman) -> None:
    *pieces, last = map(json.loads, dragoman("translate", "--stream", "--json", "one two").lines)

    assert pieces == [{"delta": "<one"}, {"delta": " two>"}]
    assert last == json.loads(dragoman("translate", "--json", "one two").stdout)


def test_stream_that_fails_ends_its_line_first(server: ScriptedServer, dragoman: Dragoman) -> None:
    def fail_later(request: v1.StreamTranslateTextRequest) -> Iterator[v1.StreamTranslateTextResponse]:
        yield v1.StreamTranslateTextResponse(delta=v1.TextDelta(text="half"))

    server.script.stream = fail_later

    result = dragoman("translate", "--stream", "Hi")

    assert (result.exit_code, result.stdout) == (1, b"half\n")
    assert "before the whole translation" in result.stderr


def test_streamed_translation_that_may_be_cut_is_said_so(server: ScriptedServer, dragoman: Dragoman) -> None:
    server.script.finish_reason = v1.FinishReason.FINISH_REASON_LENGTH

    assert "may be cut: text 1" in dragoman("translate", "--stream", "Hi").stderr
