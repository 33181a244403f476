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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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

from dragoman_model.alignment import words_of
from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import BUNDLED_MODEL, LoadedModel, load_model
from dragoman_model.coverage import attention_entropy, means_in_a_row, uncovered_source, word_coverage
from dragoman_model.plan import ForcedDecode, Plan
from dragoman_model.quality import THRESHOLDS, Thresholds, WarningKind, copied_source, sentence_warnings
from dragoman_model.training.corpus import comparison_key, prepare
from dragoman_model.training.recipe import RECIPE_FILE, load_recipe
from dragoman_model.translator import Translator

# What each kind is for.
MEANT_FOR = {
    WarningKind.UNCOVERED_SOURCE: ("clause dropped", "sentence dropped"),
    WarningKind.REPETITION: ("n-gram looped",),
    WarningKind.COPY: ("source copied",),
    WarningKind.LENGTH_RATIO: ("clause dropped", "sentence dropped"),
}
COVERAGE_PASSED, LENGTH_PASSED = 0.995, 0.999  # shares of good translations; of lengths at either end


@dataclass(frozen=True)
class Seen:
    """What was seen of a translation.

    Attributes:
        kinds: Of its warnings, by the thresholds in force.
        least_coverage: Attention of those source words in a row that draw least; None where the source has too few.
        entropy: Of its cross-attention, in nats.
    """

    kinds: frozenset[WarningKind]
    least_coverage: float | None
    entropy: float


class Looker:
    """Looks at given translations."""

    def __init__(self, model: LoadedModel) -> None:
        self._tokenizer = model.tokenizer
        self._batch = RunningBatch(model.transformer)

    def look(self, pair: Translated) -> Seen:
        """Returns what is seen of a translation."""
        source = self._tokenizer.source_pieces(pair.source)
        target = self._tokenizer.given_target_pieces(pair.target)
        forced = ForcedDecode(
            id=0,
            source_ids=tuple(self._tokenizer.encode(pair.source)),
            target_ids=tuple(self._tokenizer.encode_target(pair.target)),
        )
        (attention,) = self._batch.run(Plan(attend=(forced,))).attentions
        weights = attention.cross_mean
        warnings = [
            *sentence_warnings(pair.source, pair.target),
            *uncovered_source(weights, source, pair.source, target, pair.target),
        ]
        coverage = word_coverage(weights, words_of(source, pair.source), words_of(target, pair.target))
        means = means_in_a_row(coverage, THRESHOLDS.num_uncovered_words).tolist()
        return Seen(
            frozenset(warning.kind for warning in warnings),
            min(means, default=None),
            attention_entropy(weights),
        )


@click.command()
@click.argument("directory", metavar="[MODEL]", type=click.Path(path_type=Path), default=BUNDLED_MODEL)
@click.option("--pairs", "num_pairs", default=2000, show_default=True, help="Of the dev set, at most.")
@click.option("--seed", default=1, show_default=True, help="Of what is broken, and how.")
@click.option("--precision", default="float32", show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Where the result goes, too.")
def main(directory: Path, num_pairs: int, seed: int, precision: str, json_path: Path | None) -> None:
    """Chooses thresholds on one half of the dev set and measures those in force on the other."""
    torch.set_num_threads(1)
    rng = random.Random(seed)
    model = load_model(directory, device="cpu", precision=precision)
    pairs = prepare(load_recipe(directory / RECIPE_FILE)).dev
    rng.shuffle(pairs)  # they come in the order of their lengths
    pairs = pairs[:num_pairs]
    people = [Translated(*pair) for pair in pairs]
    translator = Translator(model)
    made = translate(translator, [pair.source for pair in pairs])
    # A source that comes twice is in one half, and its translation counts once.
    keys = sorted({comparison_key(pair.source) for pair in pairs})
    rng.shuffle(keys)
    first_half = set(keys[: len(keys) // 2])
    halves = [
        Half(
            made=list(
                dict.fromkeys(pair for pair in made if (comparison_key(pair.source) in first_half) == chosen)
            ),
            people=[pair for pair in people if (comparison_key(pair.source) in first_half) == chosen],
        )
        for chosen in (True, False)
    ]
    looker = Looker(model)
    chosen_values = choose(halves[0], looker)
    table = measure(halves[1], looker, translator, rng)
    result = {
        "model": model.name,
        "digest": model.digest,
        "machine": machine(),
        "pairs": {"chosen on": len(halves[0].people), "measured on": len(halves[1].people)},
        "thresholds": asdict(THRESHOLDS),
        "chosen": chosen_values,
        "warned": table.shares,
        "entropy_nats": table.entropies,
        "kinds": [asdict(score) for score in table.scores],
    }
    report(result, table)
    if json_path:
        json_path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Half:
    """Half of the dev set: the model's translations and people's."""

    made: list[Translated]
    people: list[Translated]

    @property
    def good(self) -> dict[str, list[Translated]]:
        """Translations that nobody broke."""
        return {"as translated": self.made, "by people": self.people, "two as translated": joined(self.made)}


def translate(translator: Translator, sources: Sequence[str]) -> list[Translated]:
    """Returns the model's greedy translations, each text taken as one sentence."""
    translations = translator.translate(sources, sentences=False)
    return [Translated(source, made.text) for source, made in zip(sources, translations, strict=True)]


def choose(half: Half, looker: Looker) -> dict[str, float]:
    """Returns the thresholds that let so many good translations pass."""
    good = [pair for pairs in half.good.values() for pair in pairs]
    coverages = [looker.look(pair).least_coverage for pair in [*half.made, *joined(half.made)]]
    slack = THRESHOLDS.length_slack
    ratios = [(len(pair.target) + slack) / (len(pair.source) + slack) for pair in good]
    return {
        "min_coverage": percentile([value for value in coverages if value is not None], 1 - COVERAGE_PASSED),
        "min_length_ratio": percentile(ratios, 1 - LENGTH_PASSED),
        "max_length_ratio": percentile(ratios, LENGTH_PASSED),
        "largest copied share": max(copied_share(pair) for pair in good),
    }


def copied_share(pair: Translated) -> float:
    """Returns the share of the source's words that stand in the translation, 0 where too few count."""
    warning = copied_source(pair.source, pair.target, Thresholds(min_copied_share=0.01))
    return 0.0 if warning is None else warning.value


@dataclass(frozen=True)
class KindScore:
    """How one kind of warning does on what it is for, with as many good translations as broken ones.

    Attributes:
        kind: Of the warning.
        recall: Share of the broken translations that it is for which have it.
        false_rate: Share of the model's translations, nobody having broken them, that have it.
        precision: Of the translations that have it the share that is broken, where every second is.
        precision_rare: The same where one in fifty is.
    """

    kind: str
    recall: float
    false_rate: float
    precision: float
    precision_rare: float


@dataclass(frozen=True)
class Measured:
    """What was measured.

    Attributes:
        counts: For each set of translations, how many.
        shares: For each set the share with a warning, of each kind and of any.
        entropies: For each set the mean entropy of cross-attention.
        scores: Of each kind.
    """

    counts: Mapping[str, int]
    shares: Mapping[str, Mapping[str, float]]
    entropies: Mapping[str, float]
    scores: Sequence[KindScore]


def measure(half: Half, looker: Looker, translator: Translator, rng: random.Random) -> Measured:
    """Returns what the thresholds in force find in good translations and in broken ones."""
    shuffled = with_words_shuffled([pair.source for pair in half.made], rng)
    sets = {
        **half.good,
        "clause dropped": without_a_clause(half.made, rng),
        "sentence dropped": without_a_sentence(half.made, rng),
        "n-gram looped": looped(half.made, rng),
        "source copied": copied(half.made),
        "of another source": of_other_sources(half.made, rng),
        "source's words shuffled": translate(translator, shuffled),
    }
    seen = {name: [looker.look(pair) for pair in pairs] for name, pairs in sets.items()}
    return Measured(
        counts={name: len(looks) for name, looks in seen.items()},
        shares={
            name: {
                **{kind.value: share(looks, kind) for kind in WarningKind},
                "any": sum(bool(look.kinds) for look in looks) / max(len(looks), 1),
            }
            for name, looks in seen.items()
        },
        entropies={
            name: sum(look.entropy for look in looks) / max(len(looks), 1) for name, looks in seen.items()
        },
        scores=[score(kind, seen) for kind in WarningKind],
    )


def share(looks: Sequence[Seen], kind: WarningKind) -> float:
    """Returns the share with a warning of a kind."""
    return sum(kind in look.kinds for look in looks) / max(len(looks), 1)


def score(kind: WarningKind, seen: Mapping[str, Sequence[Seen]]) -> KindScore:
    """Returns how a kind does on what it is for."""
    recall = share([look for name in MEANT_FOR[kind] for look in seen[name]], kind)
    # Texts of two sentences are among the broken ones where a sentence was dropped, and so they are among the good.
    good = [*seen["as translated"], *seen["two as translated"]]
    false_rate = share(good, kind)

    def precision(prevalence: float) -> float:
        right, wrong = prevalence * recall, (1 - prevalence) * false_rate
        return right / (right + wrong) if right + wrong else 1.0

    return KindScore(kind.value, recall, false_rate, precision(0.5), precision(0.02))


def report(result: Mapping[str, Any], table: Measured) -> None:
    """Prints the tables."""
    print(f"{result['model']} ({result['digest'][:12]}), {result['machine']}; dev pairs: {result['pairs']}")
    print("chosen: " + ", ".join(f"{name} {value:.3f}" for name, value in result["chosen"].items()))
    print("in force: " + ", ".join(f"{name} {value:g}" for name, value in result["thresholds"].items()))
    kinds = [*(kind.value for kind in WarningKind), "any"]
    print(f"\n| translations | number | {' | '.join(kinds)} | entropy |")
    print("| --- | --: |" + " --: |" * (len(kinds) + 1))
    for name, shares in table.shares.items():
        cells = " | ".join(f"{shares[kind]:.1%}" for kind in kinds)
        print(f"| {name} | {table.counts[name]} | {cells} | {table.entropies[name]:.2f} |")
    print("\n| kind | for | recall | false | precision, half broken | 1 in 50 broken |")
    print("| --- | --- | --: | --: | --: | --: |")
    for one in table.scores:
        meant = ", ".join(MEANT_FOR[WarningKind(one.kind)])
        print(
            f"| {one.kind} | {meant} | {one.recall:.1%} | {one.false_rate:.2%} | {one.precision:.1%} "
            f"| {one.precision_rare:.0%} |"
        )


if __name__ == "__main__":
    main()
