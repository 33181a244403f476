import json
from pathlib import Path

import pytest

from dragoman_model.checkpoint import WEIGHTS_FILE, check_files, load_model
from dragoman_model.command import run
from dragoman_model.commands import align, align_eval
from dragoman_model.training.corpus import Corpus, Pair
from dragoman_model.training.hand_aligned import HandAligned
from tests.model.made_up import made_up_pairs
from tests.models import make_tiny_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = make_tiny_model(tmp_path / "en-de", num_decoder_layers=2)
    (directory / "recipe.toml").write_text("")
    return directory


@pytest.fixture(autouse=True)
def _made_up_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [Pair(*pair) for pair in made_up_pairs()]
    corpus = Corpus(pairs[20:], pairs[:20], [], {})
    for module in (align, align_eval):
        monkeypatch.setattr(module, "load_recipe", lambda path: None)
        monkeypatch.setattr(module, "prepare", lambda recipe: corpus)
    hand = HandAligned([Pair("the cat sees", "die katze sieht")], [{(0, 0), (1, 1), (2, 2)}])
    monkeypatch.setattr(align_eval, "hand_aligned", lambda source, target: hand)


def test_a_model_that_is_there_gets_its_heads_and_keeps_its_weights(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digests = check_files(model)
    assert run(["align", str(model), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    alignment = load_model(model, device="cpu").config.alignment
    assert alignment is not None
    assert (alignment.layer, list(alignment.heads)) == (
        values["alignment"]["layer"],
        values["alignment"]["heads"],
    )
    assert (alignment.method, alignment.weighting) == (
        values["alignment"]["method"],
        values["alignment"]["weighting"],
    )
    assert check_files(model)[WEIGHTS_FILE] == digests[WEIGHTS_FILE]
    assert run(["align", str(model)]) == 0
    assert f"layer {alignment.layer}" in capsys.readouterr().out


def test_a_model_without_a_recipe_asks_for_one(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model / "recipe.toml").unlink()
    for command in ("align", "align-eval"):
        assert run([command, str(model)]) == 2
        assert "name one with --recipe" in capsys.readouterr().err


def test_every_way_to_link_is_measured(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["align-eval", str(model), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    names = [(row["name"], row["method"]) for row in values["rows"]]
    both = ("naive", "shifted")
    heads = [
        (f"layer {layer}, head {head}", method) for layer in (0, 1) for head in (0, 1) for method in both
    ]
    assert names == [
        *heads,
        *(("mean of all heads", method) for method in both),
        *(("configured choice", method) for method in both),
        *(
            (f"fast_align, {name}", "")
            for name in ("grow-diag-final-and", "intersection", "to the target", "to the source")
        ),
    ]
    assert (values["num_pairs"], values["num_links"]) == (1, 3)
    assert all(0 <= row["scores"]["aer"] <= 1 for row in values["rows"])
    assert values["configured"]["method"] == "naive"  # of a model that names no choice
    assert run(["align-eval", str(model)]) == 0
    shown = capsys.readouterr().out
    assert "1 pairs, 3 links made by hand" in shown
    assert "times the error of the mean of all heads" in shown
