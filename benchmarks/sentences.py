"""The sentences that benchmarks translate: a model's own test set, fetched as its recipe says."""

from __future__ import annotations

from pathlib import Path

from dragoman_model.training.corpus import Pair, pair_lines
from dragoman_model.training.download import fetch, read_text
from dragoman_model.training.recipe import load_recipe
from dragoman_model.training.run import RECIPE_FILE


def test_pairs(model: Path, count: int) -> list[Pair]:
    """Returns the first ``count`` pairs of the test set that the model's recipe names, from the cache or the network."""
    recipe = load_recipe(model / RECIPE_FILE)

    def read(name: str) -> str:
        download = recipe.download(name)
        return read_text(download, fetch(download))

    return pair_lines(read(recipe.corpus.test_source), read(recipe.corpus.test_target), recipe.corpus)[:count]
