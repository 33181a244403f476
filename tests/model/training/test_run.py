import dataclasses

import pytest
import torch
from safetensors.torch import load_file

from dragoman_model.checkpoint import CARD_FILE, WEIGHTS_FILE, load_model, named_weights
from dragoman_model.errors import RecipeError, TrainingError
from dragoman_model.tokenizer import TOKENIZER_FILE
from dragoman_model.training.download import CACHE_VARIABLE, MIRROR_VARIABLE
from dragoman_model.training.evaluate import DevScores
from dragoman_model.training.recipe import CorpusOptions, Recipe, TokenizerOptions
from dragoman_model.training.run import train, write_best_model
from dragoman_model.training.state import CheckpointStore
from dragoman_model.transformer import Transformer
from dragoman_model.translator import Translator
from tests.model.made_up import MANY_NAMES, made_up_pairs
from tests.model.training.mirror import write_mirror
from tests.model.training.tiny_runs import Recorder, never
from tests.models import TINY_VOCAB_SIZE

CPU = torch.device("cpu")


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """A recipe of made-up pairs, whose files lie in a mirror folder."""
    mirror = tmp_path / "mirror"
    monkeypatch.setenv(MIRROR_VARIABLE, str(mirror))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    pairs = made_up_pairs()
    texts = {
        "pairs": "".join(f"{source}\t{target}\n" for source, target in pairs[8:]),
        "test-en": "".join(f"{source}\n" for source, _ in pairs[:8:2]),
        "test-de": "".join(f"{target}\n" for _, target in pairs[:8:2]),
    }
    return Recipe(
        name="made-up",
        source_language="en",
        target_language="de",
        downloads=write_mirror(mirror, texts),
        corpus=CorpusOptions(train="pairs", test_source="test-en", test_target="test-de", dev_size=4, seed=1),
        augmentation=MANY_NAMES,
        tokenizer=TokenizerOptions(vocab_size=TINY_VOCAB_SIZE),
        model={
            "d_model": 16, "d_ff": 24, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1,
            "max_source_length": 64, "max_target_length": 32,
        },
        training={
            "max_steps": 6, "evaluate_every_steps": 3, "max_batch_tokens": 1000, "warmup_steps": 2,
            "precision": "float32",
        },
        digest="12" * 32,
    )  # fmt: skip


def train_recipe(recipe, output, **changes):
    arguments = {"device": CPU, "observer": Recorder(), "should_stop": never, **changes}
    return train(recipe, output, **arguments)


def test_a_recipe_becomes_a_model_that_loads_and_translates(recipe, tmp_path):
    prepared, recorder = [], Recorder()
    scores = train_recipe(
        recipe, tmp_path / "made-up", observer=recorder,
        on_prepared=lambda corpus, config: prepared.append((len(corpus.dev), config.d_model)),
    )  # fmt: skip
    assert prepared == [(4, 16)]
    assert [report.step for report in recorder.reports] == [1, 2, 3, 4, 5, 6]
    assert [step for step, *_ in recorder.evaluations] == [3, 6]
    model = load_model(tmp_path / "made-up", device="cpu")
    assert model.name == "made-up"
    assert model.config.language_pairs == (("en", "de"),)
    assert model.tokenizer.vocab_size == TINY_VOCAB_SIZE
    assert model.config.alignment is not None
    assert model.config.alignment.layer == 0
    assert len(Translator(model).translate(["The cat sees you."])[0].tokens) > 0
    card = (tmp_path / "made-up" / CARD_FILE).read_text()
    assert card.startswith("# made-up\n")
    assert f"BLEU {scores.bleu:.2f}" in card
    assert "- Trained on https://example.org/pairs.txt\n" in card
    assert "- To be tested on https://example.org/test-en.txt and https://example.org/test-de.txt\n" in card


def test_a_stopped_recipe_is_no_model_yet_and_ends_as_if_never_stopped(recipe, tmp_path):
    train_recipe(recipe, tmp_path / "straight")
    output, recorder = tmp_path / "stopped", Recorder()
    stopped = train_recipe(recipe, output, observer=recorder, should_stop=lambda: len(recorder.reports) == 4)
    assert stopped is None
    assert not (output / WEIGHTS_FILE).exists()
    tokenizer = (output / TOKENIZER_FILE).stat().st_mtime_ns
    assert train_recipe(recipe, output, resume=True) is not None
    assert (output / TOKENIZER_FILE).stat().st_mtime_ns == tokenizer
    digests = {load_model(folder, device="cpu").digest for folder in (output, tmp_path / "straight")}
    assert len(digests) == 1


def test_a_run_that_is_there_is_not_overwritten(recipe, tmp_path):
    train_recipe(recipe, tmp_path, should_stop=lambda: True)
    with pytest.raises(TrainingError, match="add --resume to go on with it"):
        train_recipe(recipe, tmp_path)


def test_a_changed_recipe_cannot_resume_a_run(recipe, tmp_path):
    train_recipe(recipe, tmp_path, should_stop=lambda: True)
    changed = dataclasses.replace(recipe, digest="34" * 32)
    with pytest.raises(TrainingError, match="follows another recipe"):
        train_recipe(changed, tmp_path, resume=True)


def test_what_cannot_be_resumed_is_said_before_anything_is_done(recipe, tmp_path):
    with pytest.raises(TrainingError, match="there is no run to resume here"):
        train_recipe(recipe, tmp_path / "out", resume=True)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"model": {"d_model": 15}}, r"\[model\] d_model 15"),
        ({"model": {"layers": 6}}, r"\[model\] unknown key 'layers'"),
        ({"training": {"max_steps": 0}}, r"\[training\] max_steps is 0"),
    ],
)
def test_a_recipe_with_a_bad_table_is_refused_before_training(recipe, tmp_path, tables, message):
    recorder = Recorder()
    with pytest.raises(RecipeError, match=message):
        train_recipe(dataclasses.replace(recipe, **tables), tmp_path / "out", observer=recorder)
    assert recorder.reports == []
    assert not (tmp_path / "out").exists()


def test_minutes_are_a_limit(recipe, tmp_path):
    recorder = Recorder()
    training = {**recipe.training, "max_steps": 1_000_000, "evaluate_every_steps": 1_000_000}
    quick = dataclasses.replace(recipe, training=training)
    assert train_recipe(quick, tmp_path, observer=recorder, max_minutes=0.5 / 60) is not None
    assert recorder.reports[-1].seconds >= 0.5
    assert all(report.seconds < 0.5 for report in recorder.reports[:-1])


# The finished model


class DevByWeights:
    """Scores a model by the mean of its output bias, which the tests choose."""

    def score(self, transformer):
        bleu = transformer.output_bias.mean().item()
        return DevScores(bleu, bleu, 1.0)


@pytest.mark.parametrize(("biases", "expected"), [((5.0, 1.0), 5.0), ((5.0, 9.0), 7.0)])
def test_the_average_or_the_best_checkpoint_is_kept_whichever_is_better(
    recipe, tiny_directory, tiny_model, tmp_path, biases, expected
):
    (tmp_path / TOKENIZER_FILE).write_bytes((tiny_directory / TOKENIZER_FILE).read_bytes())
    store = CheckpointStore(tmp_path / "checkpoints")
    for step, bias in enumerate(biases):
        transformer = Transformer(tiny_model.config)
        with torch.no_grad():
            transformer.output_bias.fill_(bias)
        store.save(step, named_weights(transformer))
    paths = [store.path(step) for step in range(len(biases))]
    scores = write_best_model(paths, tiny_model.config, DevByWeights(), tmp_path, recipe, CPU)
    assert scores.bleu == pytest.approx(expected)
    stored = load_file(tmp_path / WEIGHTS_FILE)["output_bias"]
    assert stored.float().mean().item() == pytest.approx(expected)
    assert load_model(tmp_path, device="cpu").config == tiny_model.config


def test_what_is_scored_is_what_float16_holds(recipe, tiny_directory, tiny_model, tmp_path):
    (tmp_path / TOKENIZER_FILE).write_bytes((tiny_directory / TOKENIZER_FILE).read_bytes())
    store = CheckpointStore(tmp_path / "checkpoints")
    transformer = Transformer(tiny_model.config)
    with torch.no_grad():
        transformer.output_bias.fill_(1 + 2**-13)  # no float16
    store.save(1, named_weights(transformer))
    scores = write_best_model([store.path(1)], tiny_model.config, DevByWeights(), tmp_path, recipe, CPU)
    assert scores.bleu == 1.0


def test_without_a_checkpoint_there_is_no_model(recipe, tiny_model, tmp_path):
    with pytest.raises(TrainingError, match="no checkpoint"):
        write_best_model([], tiny_model.config, DevByWeights(), tmp_path, recipe, CPU)
