"""Chooses what warnings take for odd, and measures what they find.

    python benchmarks/translation_warnings.py                          # the bundled model on its recipe's dev set
    python benchmarks/translation_warnings.py MODEL --pairs 600 --json warnings.json

The dev set is cut in two; pairs with the same source stay together. On the first half thresholds are chosen: the values that
let all but a given share of good translations pass (the model's own as they are, people's, and two at a time). On the second
half those in force (`Thresholds`) are measured, on good translations and on broken ones that `broken_translations` makes.
Printed are how many of each have a warning, and precision and recall of each kind on what it is for. The test set is not looked at.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import torch
from broken_translations import (
    Translated,
    copied,
    joined,
    looped,
    of_other_sources,
    with_words_shuffled,
    without_a_clause,
    without_a_sentence,
)
from reporting import machine, percentile

from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import BUNDLED_MODEL, LoadedModel, load_model
from dragoman_model.coverage import attention_entropy, uncovered_source
from dragoman_model.plan import ForcedDecode, Plan
from dragoman_model.quality import THRESHOLDS, Thresholds, WarningKind, copied_source, odd_length, sentence_warnings
from dragoman_model.training.corpus import comparison_key, prepare
from dragoman_model.training.recipe import load_recipe
from dragoman_model.training.run import RECIPE_FILE
from dragoman_model.translator import Translator

# What each kind is for.
MEANT_FOR = {
    WarningKind.UNCOVERED_SOURCE: ("clause dropped", "sentence dropped"),
    WarningKind.REPETITION: ("n-gram looped",),
    WarningKind.COPY: ("source copied",),
    WarningKind.LENGTH_RATIO: ("clause dropped", "sentence dropped"),
}
GOOD = ("as translated", "by people", "two as translated")
COVERAGE_PASSED, LENGTH_PASSED = 0.995, 0.999  # shares of good translations; of lengths at either end


class Looker:
    """Looks at given translations of sentences."""

    def __init__(self, model: LoadedModel) -> None:
        self._tokenizer = model.tokenizer
        self._batch = RunningBatch(model.transformer)

    def look(self, pair: Translated, thresholds: Thresholds = THRESHOLDS) -> Seen:
        """Returns what is seen of a translation."""
        source_ids = tuple(self._tokenizer.encode(pair.source))
        target_ids = tuple(self._tokenizer.encode_target(pair.target))
        forced = ForcedDecode(id=0, source_ids=source_ids, target_ids=target_ids)
        (attention,) = self._batch.run(Plan(attend=(forced,))).attentions
        uncovered = uncovered_source(
            attention.cross_mean,
            self._tokenizer.source_pieces(pair.source),
            pair.source,
            self._tokenizer.given_target_pieces(pair.target),
            pair.target,
            thresholds,
        )
        return Seen(
            kinds=frozenset(
                warning.kind for warning in (*sentence_warnings(pair.source, pair.target, thresholds), *uncovered)
            ),
            least_coverage=min((warning.value for warning in uncovered), default=None),
            entropy=attention_entropy(attention.cross_mean),
        )


@dataclass(frozen=True)
class Seen:
    """What was seen of a translation.

    Attributes:
        kinds: Of its warnings.
        least_coverage: Of the source words that draw least attention, so many as count.
        entropy: Of its cross-attention, in nats.
    """

    kinds: frozenset[WarningKind]
    least_coverage: float | None
    entropy: float
