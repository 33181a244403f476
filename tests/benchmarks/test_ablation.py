"""What the ablation makes of its runs, and that none is made twice."""

import dataclasses

import ablation_run
import pytest
from ablation import decoding_speeds, seed_spread, table
from ablation_run import DEFAULT, VARIANTS, Run, prepare_vocabulary, train_run

from dragoman_model.errors import TrainingError
from dragoman_model.training.download import CACHE_VARIABLE, MIRROR_VARIABLE
from tests.model.made_up import made_up_pairs
from tests.model.training.mirror import write_mirror


def row(variant, loss, *, seed=1, bleu=3.0):
    return {
        "variant": variant, "seed": seed, "nats_per_character": loss, "bleu": bleu, "steps": 1000,
        "training_tokens_per_second": 9000.0, "decoding_tokens_per_second": 3000.0, "parameters": 917_632,
    }  # fmt: skip


ROWS = [row(DEFAULT, 0.5), row(DEFAULT, 0.53, seed=2), row("rotary positions", 0.48, bleu=12.0)]


def test_seeds_are_one_line_with_their_mean_and_their_spread():
    text = table(ROWS)
    assert "| default, mean of 2 seeds | 0.5150 | 1,000 | 9,000 | 3,000 | 917,632 |\n" in text
    assert "| rotary positions | 0.4800 |" in text
    assert "lie 0.0300 nats a character apart" in text
    assert seed_spread(ROWS) == pytest.approx(0.03)
    assert seed_spread(ROWS[1:]) is None
    assert "apart" not in table(ROWS[1:])


@pytest.mark.parametrize(("bleu", "shown"), [(9.9, False), (10.0, True)])
def test_bleu_is_shown_where_the_default_has_ten(bleu, shown):
    rows = [row(DEFAULT, 0.5, bleu=bleu), ROWS[2]]
    assert ("BLEU" in table(rows)) is shown
    assert ("| 917,632 | 12.0 |" in table(rows)) is shown


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_a_shape_of_its_own(variant):
    configs = [Run(variant=name, seed=1, recipe=None, work=None, minutes=1).config() for name in VARIANTS]
    assert configs.count(Run(variant=variant, seed=1, recipe=None, work=None, minutes=1).config()) == 1


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run on made-up pairs that is over after its first update."""
    mirror = tmp_path / "mirror"
    monkeypatch.setenv(MIRROR_VARIABLE, str(mirror))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    pairs = made_up_pairs()
    downloads = write_mirror(
        mirror,
        {
            "pairs": "".join(f"{source}\t{target}\n" for source, target in pairs[8:]),
            "english": "".join(f"{source}\n" for source, _ in pairs[:8]),
            "german": "".join(f"{target}\n" for _, target in pairs[:8]),
        },
    )
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        'name = "made-up"\nsource_language = "en"\ntarget_language = "de"\n'
        + "".join(
            f'[[downloads]]\nname = "{one.name}"\nurl = "{one.url}"\nsize_bytes = {one.size_bytes}\n'
            f'sha256 = "{one.sha256}"\n'
            for one in downloads
        )
        + '[corpus]\ntrain = "pairs"\ntest_source = "english"\ntest_target = "german"\ndev_size = 4\n',
        encoding="utf-8",
    )
    work = tmp_path / "work"
    return Run(variant=DEFAULT, seed=1, recipe=recipe, work=work, minutes=1e-6, vocab_size=320)


def test_a_run_that_is_over_is_not_made_again_and_can_be_decoded_with(run, monkeypatch):
    prepare_vocabulary(run)
    first = train_run(run)
    assert first["steps"] == 1
    assert 0 < first["nats_per_character"] < first["nats_per_token"]
    [speed] = decoding_speeds([run])
    assert speed > 0
    # Interrupted behind the last evaluation: it goes on from its state, and there is nothing left to do.
    (run.directory / ablation_run.RESULT_FILE).unlink()
    again = train_run(run)
    assert again == pytest.approx(first)
    monkeypatch.setattr(ablation_run, "Trainer", None)
    assert train_run(run) == again


def test_what_lies_in_the_folder_of_a_run_with_other_options_is_refused(run, monkeypatch):
    prepare_vocabulary(run)
    train_run(run)
    monkeypatch.setitem(VARIANTS, DEFAULT, {"dropout": 0.2})
    with pytest.raises(TrainingError, match="another recipe"):
        train_run(dataclasses.replace(run))
