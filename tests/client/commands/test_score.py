import json
from pathlib import Path

import grpc
import pytest

from dragoman import v1
from tests.client.command_line import Dragoman
from tests.client.failures import failure
from tests.client.scripted_server import ScriptedServer


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "sources", tmp_path / "translations"


def of(files: tuple[Path, Path]) -> list[str]:
    return ["--sources", str(files[0]), "--translations", str(files[1])]


def test_pair_has_its_sum_and_its_mean(dragoman: Dragoman) -> None:
    result = dragoman("score", "one two three", "eins zwei drei")

    assert (result.exit_code, result.stdout, result.stderr) == (0, b"-1.7500\t-0.4375\n", "")


def test_tokens_stand_below_the_score(dragoman: Dragoman) -> None:
    lines = dragoman("score", "--tokens", "Hi", "Hallo").lines

    assert [line.split() for line in lines] == [
        ["-0.7500", "-0.3750"],
        ["60.7%", "▁Hallo"],
        ["77.9%", "</s>"],
    ]


def test_json_is_one_object_with_the_tokens_where_asked_for(dragoman: Dragoman) -> None:
    plain = json.loads(dragoman("score", "--json", "Hi", "Hallo").stdout)
    full = json.loads(dragoman("score", "--json", "--tokens", "Hi", "Hallo").stdout)

    assert (plain["source"], plain["translation"], plain["score"]) == ("Hi", "Hallo", -0.75)
    assert "tokens" not in plain
    assert [token["piece"] for token in full.pop("tokens")] == ["▁Hallo", "</s>"]
    assert full == plain


def test_model_and_languages_reach_the_server(server: ScriptedServer, dragoman: Dragoman) -> None:
    dragoman("score", "a", "b", "--model", "en-de", "--source-language", "en", "--target-language", "de")

    assert server.script.score_requests == [
        v1.ScoreTextRequest(
            items=[v1.ScoreItem(text="a", translation="b")],
            model="en-de",
            source_language_code="en",
            target_language_code="de",
        )
    ]


def test_files_are_scored_line_by_line(
    server: ScriptedServer, dragoman: Dragoman, files: tuple[Path, Path]
) -> None:
    files[0].write_bytes(b"".join(b"source %d\r\n" % number for number in range(200)))
    files[1].write_bytes(b"\n".join(b"x " * (number % 3) for number in range(200)))

    result = dragoman("score", *of(files))

    assert result.exit_code == 0
    assert [float(line.split("\t")[0]) for line in result.lines] == [
        -0.25 - 0.5 * (number % 3) for number in range(200)
    ]
    sent = [item for request in server.script.score_requests for item in request.items]
    assert [item.text for item in sent] == [f"source {number}" for number in range(200)]


def test_pair_that_is_refused_is_named_and_leaves_its_place(
    server: ScriptedServer, dragoman: Dragoman, files: tuple[Path, Path]
) -> None:
    server.script.failures = [
        failure(
            grpc.StatusCode.INVALID_ARGUMENT,
            "items[2].text: too long",
            reason="INVALID_ARGUMENT",
            violations={"items[2].text": "300 tokens", "items[3].translation": "blank"},
        )
    ]
    files[0].write_bytes(b"a\n\xff\nb\nlong\nc\n \n")
    files[1].write_bytes(b"a\nb\nc\nd\ne\nf\n")

    result = dragoman("score", *of(files))

    assert result.exit_code == 1
    assert result.lines == ["-0.7500\t-0.3750", "", "-0.7500\t-0.3750", "", "", ""]
    assert result.stderr.splitlines() == [
        "line 2: source: not UTF-8: byte 1 of the line is 0xff; convert the file, for example with iconv",
        "line 4: source: 300 tokens",
        "line 5: translation: blank",
        "line 6: source: blank",
        "Error: 4 of 6 pairs could not be scored; their places are empty: line 2, 4, 5, 6",
    ]


def test_blank_lines_that_translate_passed_on_have_no_score_and_their_place(
    server: ScriptedServer, dragoman: Dragoman, files: tuple[Path, Path]
) -> None:
    files[0].write_bytes(b"a\n\n \nb\n")
    files[1].write_bytes(b"a\n\n\nb\n")

    result = dragoman("score", *of(files))
    documents = [json.loads(line) for line in dragoman("score", "--json", *of(files)).lines]

    assert result.exit_code == 0
    assert result.lines == ["-0.7500\t-0.3750", "", "", "-0.7500\t-0.3750"]
    assert [document["score"] for document in documents] == [-0.75, None, None, -0.75]
    assert [item.text for request in server.script.score_requests for item in request.items] == ["a", "b"] * 2


def test_refused_pair_is_marked_in_json(
    server: ScriptedServer, dragoman: Dragoman, files: tuple[Path, Path]
) -> None:
    files[0].write_bytes(b"a\nb\n")
    files[1].write_bytes(b"a\n\xff\n")

    good, bad = map(json.loads, dragoman("score", "--json", *of(files)).lines)

    assert good["score"] == -0.75
    assert (bad["source"], bad["translation"]) == ("b", None)
    assert "not UTF-8" in bad["error"]["message"]


def test_refusal_of_no_pair_in_particular_ends_the_job(
    server: ScriptedServer, dragoman: Dragoman, files: tuple[Path, Path]
) -> None:
    server.script.failures = [failure(grpc.StatusCode.INVALID_ARGUMENT, "no such language", reason="X")]
    files[0].write_bytes(b"a\n")
    files[1].write_bytes(b"b\n")

    result = dragoman("score", *of(files))

    assert (result.exit_code, result.stderr) == (1, "Error: no such language\n")


def test_one_side_may_come_through_standard_input(dragoman: Dragoman, files: tuple[Path, Path]) -> None:
    files[1].write_text("eins zwei drei\nHallo\n")

    result = dragoman(
        "score", "--sources", "-", "--translations", str(files[1]), stdin=b"one two three\nHi\n"
    )

    assert result.exit_code == 0
    assert result.lines == ["-1.7500\t-0.4375", "-0.7500\t-0.3750"]


@pytest.mark.parametrize(
    ("sources", "translations", "shorter"),
    [(b"a\nb\n", b"c\n", "--translations ends after line 1,"), (b"", b"c\n", "--sources ends after line 0,")],
)
def test_files_of_different_lengths_are_refused_after_what_they_share(
    dragoman: Dragoman, files: tuple[Path, Path], sources: bytes, translations: bytes, shorter: str
) -> None:
    files[0].write_bytes(sources)
    files[1].write_bytes(translations)

    result = dragoman("score", *of(files))

    assert result.exit_code == 1
    assert shorter in result.stderr
    assert len(result.lines) == min(sources.count(b"\n"), translations.count(b"\n"))


def test_empty_files_have_no_scores(dragoman: Dragoman, files: tuple[Path, Path]) -> None:
    for path in files:
        path.touch()

    result = dragoman("score", *of(files))

    assert (result.exit_code, result.stdout, result.stderr) == (0, b"", "")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["one"],
        ["one", "two", "three"],
        ["--sources", "x"],
        ["a", "b", "--sources", "x"],
        ["--sources", "-", "--translations", "-"],
        ["a", "--sources", "x", "--translations", "y"],
        ["--tokens", "--sources", "x", "--translations", "y"],
        ["\udcff", "b"],
    ],
)
def test_bad_usage_exits_2(dragoman: Dragoman, arguments: list[str]) -> None:
    result = dragoman("score", *arguments)

    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


def test_missing_file_exits_1(dragoman: Dragoman, tmp_path: Path) -> None:
    result = dragoman("score", "--sources", str(tmp_path / "no"), "--translations", str(tmp_path / "no"))

    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {tmp_path}")
