import json
import sys
from pathlib import Path

import pytest

from dragoman import v1
from tests.client.command_line import Dragoman
from tests.client.scripted_attention import GERMAN, SENTENCE
from tests.client.scripted_server import ScriptedServer


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


def test_json_of_words_and_the_largest_weights_says_where_they_stand(dragoman: Dragoman) -> None:
    arguments = ["--json", "--words", "--reduce", "mean", "--top-k", "2"]
    document = json.loads(dragoman("attention", SENTENCE, *arguments).lines[0])
    weights = document["weights"]

    assert [unit["text"] for unit in document["source_units"]] == [*SENTENCE.split(), "</s>"]
    assert (weights["kind"], weights["axes"], weights["shape"]) == ("cross", ["target", "rank"], [8, 2])
    assert (weights["layers"], weights["heads"]) == ([0, 1], [0, 1, 2, 3])
    assert all(0 <= column < 10 for row in weights["indices"] for column in row)
    assert all(row == sorted(row, reverse=True) for row in weights["values"])


def test_format_json_is_json(dragoman: Dragoman) -> None:
    assert dragoman("attention", SENTENCE, "--format", "json") == dragoman("attention", SENTENCE, "--json")


@pytest.mark.parametrize(
    ("name", "beginning"),
    [
        ("picture.html", b"<!doctype html>"),
        ("picture.PNG", b"\x89PNG"),
        ("picture.svg", b"<?xml"),
        ("numbers.npz", b"PK"),
        ("numbers.json", b"{"),
        ("picture.txt", SENTENCE.encode()),
    ],
)
def test_end_of_the_file_s_name_chooses_the_format(
    dragoman: Dragoman, tmp_path: Path, name: str, beginning: bytes
) -> None:
    result = dragoman("attention", SENTENCE, "--output", str(tmp_path / name))

    assert (result.exit_code, result.stdout) == (0, b"")
    assert (tmp_path / name).read_bytes().startswith(beginning)
    assert str(tmp_path / name) in "".join(result.stderr.splitlines())


def test_file_with_an_ending_that_is_no_format_needs_the_format(
    dragoman: Dragoman, server: ScriptedServer, tmp_path: Path
) -> None:
    path = tmp_path / "figure.pdf"
    result = dragoman("attention", SENTENCE, "--output", str(path))
    assert result.exit_code == 2
    assert "--format" in result.stderr
    assert "svg" in result.stderr
    assert not path.exists()
    assert not server.script.attention_requests
    assert dragoman("attention", SENTENCE, "--output", str(path), "--format", "svg").exit_code == 0
    assert path.read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("form", "beginning"), [("html", b"<!doctype html>"), ("npz", b"PK"), ("svg", b"<?xml")]
)
def test_format_goes_into_a_pipe(dragoman: Dragoman, form: str, beginning: bytes) -> None:
    for arguments in (["--format", form], ["--format", form, "--output", "-"]):
        assert dragoman("attention", SENTENCE, *arguments).stdout.startswith(beginning)


def test_terminal_is_spared_what_it_cannot_show(
    dragoman: Dragoman, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    module = sys.modules["dragoman_client.commands.attention"]  # whose name the command hides
    monkeypatch.setattr(module, "is_terminal", lambda stream: True)
    result = dragoman("attention", SENTENCE, "--format", "html")

    assert result.stdout == b""
    assert "Written: attention.html" in result.stderr
    assert (tmp_path / "attention.html").read_bytes().startswith(b"<!doctype html>")


@pytest.mark.parametrize(
    ("form", "level", "kinds", "reduction"),
    [
        ("html", "WORD", 3, False),
        ("npz", "PIECE", 3, False),
        ("svg", "WORD", 1, True),
        ("text", "WORD", 1, True),
    ],
)
def test_format_asks_for_what_it_shows(
    server: ScriptedServer, dragoman: Dragoman, form: str, level: str, kinds: int, reduction: bool
) -> None:
    dragoman("attention", SENTENCE, "--format", form)

    [request] = server.script.attention_requests
    assert request.selection.level == v1.AttentionLevel.Value(f"ATTENTION_LEVEL_{level}")
    assert len(request.selection.kinds) == kinds
    assert bool(request.selection.layer_reduction) == bool(request.selection.head_reduction) == reduction


def test_choices_hold_for_every_format(server: ScriptedServer, dragoman: Dragoman) -> None:
    dragoman(
        "attention", SENTENCE, "--format", "html", "--pieces", "--kind", "decoder-self", "--reduce", "max"
    )

    [request] = server.script.attention_requests
    assert request.selection == v1.AttentionSelection(
        kinds=["ATTENTION_KIND_DECODER_SELF"],
        level="ATTENTION_LEVEL_PIECE",
        layer_reduction="ATTENTION_REDUCTION_MAX",
        head_reduction="ATTENTION_REDUCTION_MAX",
    )


def test_figure_without_matplotlib_says_what_to_install_before_anything_is_asked(
    server: ScriptedServer, dragoman: Dragoman, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = dragoman("attention", SENTENCE, "--format", "png")

    assert (result.exit_code, result.stdout) == (1, b"")
    assert "pip install '.[plot]' in the checkout" in result.stderr
    assert not server.script.attention_requests


def test_two_formats_at_once_exit_2(dragoman: Dragoman) -> None:
    assert dragoman("attention", SENTENCE, "--json", "--format", "html").exit_code == 2


def test_file_that_cannot_be_written_exits_1(dragoman: Dragoman, tmp_path: Path) -> None:
    result = dragoman("attention", SENTENCE, "--output", str(tmp_path / "none" / "picture.html"))

    assert result.exit_code == 1
    assert "No such file" in result.stderr
