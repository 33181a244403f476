from pathlib import Path

import pytest
from rich.cells import cell_len

from dragoman import v1
from tests.client.command_line import Dragoman
from tests.client.scripted_attention import GERMAN, SENTENCE
from tests.client.scripted_server import ScriptedServer


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
        ("--layer", "9 given; there are layers 0 to 1"),
        ("--head", "9 given; there are heads 0 to 3"),
    ],
)
def test_layer_or_head_that_is_not_there_exits_2(dragoman: Dragoman, option: str, reason: str) -> None:
    result = dragoman("attention", SENTENCE, option, "9")

    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "caption"),
    [
        (["--layer", "0", "--layer", "1", "--head", "3"], "cross-attention · mean of 2 layers · head 3"),
        (["--reduce", "max"], "cross-attention · maximum of 2 layers · maximum of 4 heads"),
        (["--kind", "encoder-self"], "encoder self-attention · mean of 2 layers · mean of 4 heads"),
        (
            ["--kind", "decoder-self", "--reduce", "rollout"],
            "decoder self-attention · rollout through 2 layers · mean of 4 heads",
        ),
    ],
)
def test_caption_says_what_is_drawn(dragoman: Dragoman, arguments: list[str], caption: str) -> None:
    assert dragoman("attention", SENTENCE, *arguments).lines[2] == f"{caption} · en-de"


def test_kinds_have_the_rows_and_columns_that_are_theirs(dragoman: Dragoman) -> None:
    encoder = dragoman("attention", SENTENCE, "--kind", "encoder-self", "--width", "90").lines
    decoder = dragoman("attention", SENTENCE, "--kind", "decoder-self", "--width", "90").lines

    assert encoder[4].split() == [*SENTENCE.split(), "</s>"]
    assert [line.split()[0] for line in encoder[5:15]] == [*SENTENCE.split(), "</s>"]
    assert decoder[4].split() == ["<s>", *GERMAN.split()]
    assert [line.split()[0] for line in decoder[5:13]] == [*GERMAN.split(), "</s>"]


def test_special_tokens_are_left_out_when_asked_for(dragoman: Dragoman) -> None:
    lines = dragoman("attention", SENTENCE, "--drop-special", "--width", "80").lines

    assert lines[4].split() == SENTENCE.split()
    assert "</s>" not in "".join(lines)


def test_translation_of_special_tokens_alone_is_said_to_be(dragoman: Dragoman) -> None:
    stdout = dragoman("attention", "Tom.", "--translation", " ", "--drop-special").stdout.decode()

    assert "nothing but special tokens" in stdout


def test_selection_travels_as_it_was_asked_for(server: ScriptedServer, dragoman: Dragoman) -> None:
    dragoman(
        "attention", SENTENCE, "--json", "--words", "--kind", "encoder-self", "--head", "2", "--top-k", "3"
    )

    [request] = server.script.attention_requests
    assert request.selection == v1.AttentionSelection(
        kinds=["ATTENTION_KIND_ENCODER_SELF"], heads=[2], level="ATTENTION_LEVEL_WORD", top_k=3
    )


@pytest.mark.parametrize("number", ["-1", str(2**40)])
@pytest.mark.parametrize("option", ["--layer", "--head", "--top-k"])
def test_number_that_no_request_can_hold_exits_2(
    server: ScriptedServer, dragoman: Dragoman, option: str, number: str
) -> None:
    assert dragoman("attention", SENTENCE, option, number).exit_code == 2
    assert not server.script.attention_requests


@pytest.mark.parametrize("form", ["text", "json"])
def test_translations_that_may_be_bad_are_told_of_beside_their_attention(
    server: ScriptedServer, dragoman: Dragoman, form: str
) -> None:
    assert dragoman("attention", SENTENCE, "--format", form).stderr == ""
    server.script.warnings = [v1.Warning(kind=v1.WarningKind.WARNING_KIND_UNCOVERED_SOURCE)]

    result = dragoman("attention", f"{SENTENCE} Tom likes tea.", "--format", form)

    assert result.exit_code == 0
    expected = "Warning: 2 of the translations may leave out a part of the source: sentence 1, 2\n"
    assert result.stderr == expected


def test_search_options_travel(server: ScriptedServer, dragoman: Dragoman) -> None:
    dragoman("attention", SENTENCE, "--beam-size", "4", "--max-length", "30")

    [request] = server.script.attention_requests
    assert request.options == v1.DecodingOptions(beam_size=4, max_decoding_length=30)


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


def test_layers_and_heads_kept_apart_are_drawn_one_after_another(dragoman: Dragoman) -> None:
    lines = dragoman("attention", SENTENCE, "--reduce", "none", "--head", "1", "--head", "3").lines

    assert [line for line in lines if " · " in line] == [
        f"cross-attention · layer {layer} · head {head} · en-de" for layer in (0, 1) for head in (1, 3)
    ]


def test_picture_in_a_file_is_not_coloured_for_the_terminal(
    dragoman: Dragoman, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    dragoman("attention", SENTENCE, "--output", str(tmp_path / "picture.txt"))

    assert b"\x1b[" not in (tmp_path / "picture.txt").read_bytes()


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
