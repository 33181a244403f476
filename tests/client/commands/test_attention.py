import json
from collections.abc import Callable

import pytest
from rich.cells import cell_len

from tests.client.command_line import Result
from tests.client.scripted_server import ScriptedServer

Dragoman = Callable[..., Result]

SENTENCE = "A girl is reading a book in the garden."
GERMAN = "Ein Mädchen liest im Garten ein Buch."


@pytest.fixture(autouse=True)
def _german(server: ScriptedServer) -> None:
    server.script.translations[SENTENCE] = GERMAN


def test_sentence_translation_and_picture_are_drawn(dragoman: Dragoman) -> None:
    lines = dragoman("attention", SENTENCE, "--width", "80").lines

    assert lines[:3] == [SENTENCE, GERMAN, "cross-attention · mean of 2 layers · mean of 4 heads · en-de"]
    assert lines[4].split() == [*SENTENCE.split(), "</s>"]
    assert [line.split()[0] for line in lines[5:13]] == [*GERMAN.split(), "</s>"]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("text", ["Tom likes tea.", " ".join(["reading"] * 30) + "."])
def test_no_line_is_wider_than_asked_for(dragoman: Dragoman, text: str, width: int) -> None:
    lines = dragoman("attention", text, "--width", str(width)).lines

    assert max(map(cell_len, lines)) <= width


def test_pieces_are_shown_when_asked_for(dragoman: Dragoman) -> None:
    lines = dragoman("attention", "reading reading", "--pieces", "--width", "80").lines

    assert lines[4].split() == ["read", "ing", "▁read", "ing", "</s>"]


def test_layer_and_head_are_chosen(dragoman: Dragoman) -> None:
    one = dragoman("attention", SENTENCE, "--layer", "1", "--head", "2")
    mean = dragoman("attention", SENTENCE)

    assert one.lines[2] == "cross-attention · layer 1 · head 2 · en-de"
    assert one.lines[5:] != mean.lines[5:]


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--layer", "there is no layer 9; there are 0, 1"),
        ("--head", "there is no head 9; there are 0, 1, 2, 3"),
    ],
)
def test_layer_or_head_that_is_not_there_exits_2(dragoman: Dragoman, option: str, reason: str) -> None:
    result = dragoman("attention", SENTENCE, option, "9")

    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.split())


def test_given_translation_is_shown(server: ScriptedServer, dragoman: Dragoman) -> None:
    lines = dragoman("attention", SENTENCE, "--translation", "Das Buch.").lines

    assert lines[1] == "Das Buch."
    assert server.script.attention_requests[0].translation == "Das Buch."


def test_sentences_follow_one_another(dragoman: Dragoman) -> None:
    lines = dragoman("attention", "First one. Second one.").lines

    assert [line for line in lines if line.endswith(" one.")] == ["First one.", "Second one."]
    assert [line.split(" · ")[-1] for line in lines if " · " in line] == [
        "sentence 1 of 2",
        "sentence 2 of 2",
    ]


def test_json_holds_every_weight(dragoman: Dragoman) -> None:
    [line] = dragoman("attention", SENTENCE, "--json").lines
    document = json.loads(line)
    weights = document["weights"]

    assert document["translation"]["text"] == GERMAN
    layers, heads, targets, sources = weights["shape"]
    assert (layers, heads, targets) == (2, 4, len(document["target_units"]))
    assert len(weights["values"][1][3][targets - 1]) == sources == len(document["source_units"])
    assert sum(weights["values"][1][3][0]) == pytest.approx(1, abs=1e-5)


def test_json_of_one_head_holds_that_head(dragoman: Dragoman) -> None:
    every = json.loads(dragoman("attention", SENTENCE, "--json").lines[0])["weights"]
    one = json.loads(dragoman("attention", SENTENCE, "--json", "--layer", "1", "--head", "2").lines[0])[
        "weights"
    ]

    assert (one["layers"], one["heads"], one["shape"][:2]) == ([1], [2], [1, 1])
    assert one["values"][0][0] == every["values"][1][2]


@pytest.mark.parametrize(("when", "colored"), [("auto", False), ("never", False), ("always", True)])
def test_colour_comes_when_wanted(dragoman: Dragoman, when: str, colored: bool) -> None:
    output = dragoman("attention", SENTENCE, "--color", when).stdout

    assert (b"\x1b[" in output) == colored
    assert ("█".encode() in output) == (not colored)


def test_no_color_is_honoured_unless_colour_is_demanded(
    dragoman: Dragoman, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    assert b"\x1b[" not in dragoman("attention", SENTENCE).stdout
    assert b";48;5;" in dragoman("attention", SENTENCE, "--color", "always").stdout


def test_blank_text_is_said_to_have_none(dragoman: Dragoman) -> None:
    result = dragoman("attention", "  ")

    assert (result.exit_code, result.stdout) == (0, b"")
    assert "blank" in result.stderr


def test_argument_that_is_not_text_exits_2(dragoman: Dragoman) -> None:
    assert dragoman("attention", "\udcff").exit_code == 2
    assert dragoman("attention", "fine", "--translation", "\udcff").exit_code == 2
