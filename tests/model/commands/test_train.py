"""``dragoman-model train`` and ``average``, on a recipe small enough to train while one waits."""

import json
import shlex
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dragoman_model.checkpoint import WEIGHTS_FILE, load_model
from dragoman_model.command import run
from dragoman_model.commands.train import TrainingDisplay
from dragoman_model.training.download import CACHE_VARIABLE, MIRROR_VARIABLE
from dragoman_model.training.state import average_checkpoints
from dragoman_model.training.trainer import StepReport
from tests.model.made_up import made_up_pairs
from tests.model.training.mirror import write_mirror

OPTIONS = """
[corpus]
train = "pairs"
test_source = "test-en"
test_target = "test-de"
dev_size = 4

[augmentation]
names = 1.0  # many of them: too few different words hold too few pieces

[tokenizer]
vocab_size = 384

[model]
d_model = 16
d_ff = 24
num_heads = 2
num_encoder_layers = 1
num_decoder_layers = 1
max_source_length = 64
max_target_length = 32

[training]
max_steps = 6
evaluate_every_steps = 3
max_batch_tokens = 1000
warmup_steps = 2
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(MIRROR_VARIABLE, str(tmp_path / "mirror"))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    pairs = made_up_pairs()
    texts = {
        "pairs": "".join(f"{source}\t{target}\n" for source, target in pairs[8:]),
        "test-en": "".join(f"{source}\n" for source, _ in pairs[:8]),
        "test-de": "".join(f"{target}\n" for _, target in pairs[:8]),
    }
    lines = ['name = "made-up"', 'source_language = "en"', 'target_language = "de"']
    for download in write_mirror(tmp_path / "mirror", texts):
        lines += [
            "[[downloads]]",
            *(f'{key} = "{getattr(download, key)}"' for key in ("name", "url", "sha256")),
            f"size_bytes = {download.size_bytes}",
        ]
    path = tmp_path / "made up.toml"  # a name that a shell would cut in two
    path.write_text("\n".join(lines) + OPTIONS)
    return path


def test_a_recipe_becomes_a_model_that_carries_it(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "made-up"
    assert run(["train", str(recipe), "--output", str(output), "--device", "cpu", "--json"]) == 0
    printed, said = capsys.readouterr()
    assert json.loads(printed)["model"] == str(output)
    assert "training pairs" in said
    assert "step 3  dev BLEU" in said
    assert (output / "recipe.toml").read_bytes() == recipe.read_bytes()
    hypotheses = tmp_path / "hypotheses"
    assert run(["evaluate", str(output), "--output", str(hypotheses), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pairs"] == 8
    assert len(hypotheses.read_text().splitlines()) == 8


def test_ctrl_c_saves_and_prints_a_command_that_goes_on(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "made-up"
    stepped = TrainingDisplay.stepped

    def interrupt(display: TrainingDisplay, report: StepReport) -> None:
        stepped(display, report)
        if report.step == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(TrainingDisplay, "stepped", interrupt)
    before = signal.getsignal(signal.SIGINT)
    assert run(["train", str(recipe), "--output", str(output), "--device", "cpu"]) == 130
    assert signal.getsignal(signal.SIGINT) is before
    program, *arguments = shlex.split(capsys.readouterr().err.rpartition("To go on: ")[2])
    assert program == "dragoman-model"
    assert "--resume" in arguments
    assert run(arguments) == 0
    assert load_model(output, device="cpu").name == "made-up"


def test_a_second_ctrl_c_ends_the_run_at_once(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt_twice(display: TrainingDisplay, report: StepReport) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(TrainingDisplay, "stepped", interrupt_twice)
    assert run(["train", str(recipe), "--output", str(tmp_path / "made-up"), "--device", "cpu"]) == 130
    assert not (tmp_path / "made-up" / "training" / "state.pt").exists()


def test_average_makes_a_model_of_the_mean_of_a_runs_checkpoints(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, averaged = tmp_path / "made-up", tmp_path / "mean"
    assert run(["average", str(tmp_path), "--output", str(averaged)]) == 2  # no run at all
    assert run(["train", str(recipe), "--output", str(output), "--device", "cpu"]) == 0
    assert run(["average", str(output), "--output", str(averaged)]) == 0
    assert capsys.readouterr().out.endswith(f"{averaged}: the mean of 2 checkpoints\n")
    assert load_model(averaged, device="cpu").name == "mean"
    mean = average_checkpoints(sorted((output / "training" / "checkpoints").iterdir()))
    stored = load_file(averaged / WEIGHTS_FILE)
    assert all(stored[name].equal(weight.to(torch.float16)) for name, weight in mean.items())
