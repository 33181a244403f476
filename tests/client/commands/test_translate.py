import json
from pathlib import Path

import pytest

from dragoman import v1
from tests.client.command_line import Dragoman
from tests.client.scripted_server import ScriptedServer


def test_each_argument_is_a_text(dragoman: Dragoman) -> None:
    result = dragoman("translate", "Hello there", "", "two\nlines")

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.decode() == "<Hello there>\n\n<two\nlines>\n"


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
