"""``dragoman-model`` as a person runs it."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from dragoman_model.command import dragoman_model, run
from tests.models import make_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


def _give_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_commands_that_lack_a_package_are_listed_and_say_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = "dragoman_model.commands.evaluate"
    monkeypatch.setitem(sys.modules, missing, None)  # what makes its import fail
    assert run(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"evaluate Scores translations with BLEU and chrF. Needs {missing}" in shown
    assert "translate Translates" in shown
    assert run(["evaluate", "models/en-de", "--limit", "3"]) == 1
    assert capsys.readouterr().err == (
        f"Error: evaluate needs {missing}, which is not installed: pip install '.[train]' in the checkout\n"
    )


def test_info_says_what_a_model_is(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", str(model), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["name"] == "tiny"
    assert values["config"]["language_pairs"] == [["en", "de"]]
    assert len(values["digest"]) == 64
    assert run(["info", str(model)]) == 0
    shown = capsys.readouterr().out
    assert f"{values['parameter_count']:,}" in shown
    assert "en to de" in shown
    assert "full in the encoder, full in the decoder, dot between them; sinusoidal positions" in shown


def test_translate_gives_a_line_for_each_line_whatever_it_holds(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["The cat sees the house.", "", "  ", "a\u2028b", "\ufeffLena\x00", "😀", "you"]
    _give_input(monkeypatch, "\r\n".join(lines).encode())
    assert run(["translate", str(model), "--json"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.rstrip("\n").split("\n")]
    assert len(printed) == len(lines)
    assert [entry["finish_reason"] == "BLANK" for entry in printed] == [not line.strip() for line in lines]
    assert printed[0]["text"]


def test_translate_gives_the_same_from_arguments_and_from_standard_input(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["translate", str(model), "A dog likes you.", "Lena"]) == 0
    from_arguments = capsys.readouterr().out
    _give_input(monkeypatch, b"A dog likes you.\nLena\n")
    assert run(["translate", str(model)]) == 0
    assert capsys.readouterr().out == from_arguments


def test_beams_show_their_best_translations(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "A dog sees the house."
    assert run(["translate", str(model), "--beam-size", "4", text]) == 0
    best = capsys.readouterr().out.rstrip("\n")
    assert run(["translate", str(model), "--beam-size", "4", "--num-hypotheses", "3", text]) == 0
    lines = capsys.readouterr().out.rstrip("\n").split("\n")
    assert len(lines) == 3
    assert lines[0].split("  ", 1)[1] == best
    ranks = [float(line.split()[0]) for line in lines]
    assert ranks == sorted(ranks, reverse=True)
    assert run(["translate", str(model), "--beam-size", "4", "--num-hypotheses", "3", "--json", text]) == 0
    entry = json.loads(capsys.readouterr().out)
    assert entry["alternatives"][0]["text"] == entry["text"]
    assert {alternative["finish_reason"] for alternative in entry["alternatives"]} <= {"EOS", "LENGTH"}


def test_several_translations_of_a_line_need_json(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _give_input(monkeypatch, b"Lena\nLena\n")
    assert run(["translate", str(model), "--beam-size", "2", "--num-hypotheses", "2"]) == 2
    _give_input(monkeypatch, b"Lena\nLena\n")
    assert run(["translate", str(model), "--beam-size", "2", "--num-hypotheses", "2", "--json"]) == 0
    assert len(capsys.readouterr().out.rstrip("\n").split("\n")) == 2


def test_max_length_bounds_the_translation(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["translate", str(model), "--max-length", "3", "--json", "A dog sees the house."]) == 0
    entry = json.loads(capsys.readouterr().out)
    assert entry["target_token_count"] <= 3


def test_every_option_has_a_twin_in_the_environment(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = click.Context(dragoman_model)
    for name in dragoman_model.list_commands(context):
        command = dragoman_model.get_command(context, name)
        assert command
        for option in command.params:
            if isinstance(option, click.Option):
                twin = "DRAGOMAN_" + option.opts[0].removeprefix("--").replace("-", "_").upper()
                assert option.envvar == twin, (name, option.opts)
                assert option.show_envvar
    monkeypatch.setenv("DRAGOMAN_MAX_LENGTH", "3")
    assert run(["translate", str(model), "--json", "A dog sees the house."]) == 0
    assert json.loads(capsys.readouterr().out)["target_token_count"] <= 3


def test_invalid_utf8_names_the_line(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _give_input(monkeypatch, b"fine\n\xff\xfe\n")
    assert run(["translate", str(model)]) == 1
    assert "line 2" in capsys.readouterr().err


def test_a_sentence_over_the_limit_names_its_line_length_and_limit(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["translate", str(model), "fine", "x " * 400]) == 1
    message = capsys.readouterr().err
    assert "line 2" in message
    assert "256" in message


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.model", "SHA256SUMS"])
def test_a_broken_model_directory_is_one_line_and_exit_1(
    missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = make_tiny_model(tmp_path / "broken")
    (directory / missing).unlink()
    assert run(["translate", str(directory), "Hello"]) == 1
    message = capsys.readouterr().err
    assert missing in message
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["translate"],
        ["no-such-command"],
        ["evaluate", "MODEL", "--source", "SOURCE"],
        ["evaluate", "MODEL"],  # carries no recipe
        ["translate", "MODEL", "--max-length", "256", "Hello"],
        ["translate", "MODEL", "--num-hypotheses", "2", "Hello"],
        ["translate", "MODEL", "--beam-size", "0", "Hello"],
        ["translate", "MODEL", "--length-penalty", "nan", "Hello"],
        ["translate", "MODEL", "--length-penalty", "51", "Hello"],
        ["translate", "MODEL", "fine", "not \udcff UTF-8"],
        ["train", "no-such-recipe.toml", "--output", "x"],
        ["train", "SOURCE", "--output", "x", "--max-minutes", "nan"],
    ],
)
def test_bad_usage_is_exit_2(
    arguments: list[str], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "source").write_text("a\n")
    names = {"MODEL": str(model), "SOURCE": str(tmp_path / "source")}
    assert run([names.get(argument, argument) for argument in arguments]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_evaluate_prints_scores_with_signatures_and_writes_the_translations(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, reference, output = tmp_path / "source", tmp_path / "reference", tmp_path / "hypotheses"
    source.write_text("The cat sees the house.\nA dog likes 15 apples!\nyou?\n")
    assert run(["translate", str(model), *source.read_text().splitlines()]) == 0
    translations = capsys.readouterr().out
    reference.write_text(translations)
    arguments = ["evaluate", str(model), "--source", str(source), "--reference", str(reference)]
    assert run([*arguments, "--output", str(output), "--robustness", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert output.read_text() == translations
    assert values["pairs"] == 3
    assert values["bleu"] == pytest.approx(100)
    assert "tok:13a" in values["bleu_signature"]
    assert values["chrf"] == pytest.approx(100)
    assert values["robustness"]["num_spelling_pairs"] == 3
    assert run([*arguments, "--output", str(output), "--limit", "2"]) == 0
    assert "2 pairs" in capsys.readouterr().out
    assert len(output.read_text().splitlines()) == 2


@pytest.mark.parametrize("buffering", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_a_full_disk_is_one_line_and_exit_1(model: Path, buffering: dict[str, str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "dragoman_model", "translate", str(model), "Hi"]
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, env={**environment, **buffering}, timeout=60
        )
    assert (result.returncode, result.stderr.count(b"\n")) == (1, 1)
    assert b"No space left" in result.stderr


# Interrupts itself while it imports MODULE, from where errors are swallowed.
INTERRUPTED_WHILE_IMPORTING = """
import os, signal, sys
_, MODULE, *sys.argv[1:] = sys.argv
class Swallowing:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except BaseException:
                pass
sys.meta_path.insert(0, Swallowing())
from dragoman_model.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["click", "dragoman_model.commands.info"])
def test_an_interrupt_while_it_imports_ends_it_without_a_word(module: str, model: Path) -> None:
    # Whoever runs the tests may ignore interrupts, as a shell's & does.
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", listening + INTERRUPTED_WHILE_IMPORTING, module, "info", str(model)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


def test_an_interrupt_that_is_ignored_stays_so_while_it_imports(model: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED_WHILE_IMPORTING, "click", "info", str(model)]
    ignoring = ["/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command]  # as nohup and a shell's & do
    result = subprocess.run(ignoring, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    assert model.name in result.stdout
