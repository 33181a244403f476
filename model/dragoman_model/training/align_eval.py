"""The word links of a model, and of fast_align, against hand-made ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dragoman_model.alignment import aligning_heads, every_head, method_of, weighting_of
from dragoman_model.alignment_config import AlignmentMethod, Weighting
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.training.corpus import Corpus, Pair
from dragoman_model.training.fast_align import FastAlign, Links
from dragoman_model.training.hand_aligned import HandAligned
from dragoman_model.training.link_quality import Heads, LinkScores, attend_pairs, score_links

_METHODS: tuple[AlignmentMethod, ...] = ("naive", "shifted")


@dataclass(frozen=True)
class LinkRow:
    """The error of one way to link words.

    Attributes:
        name: What was measured.
        method: "naive" or "shifted"; empty for what is no attention.
        scores: Against the hand-made links.
    """

    name: str
    method: str
    scores: LinkScores


@dataclass(frozen=True)
class AlignmentReport:
    """The error of every way to link words.

    Attributes:
        rows: Each head, the mean of all, the configured choice, fast_align.
        configured: The row of the configured choice in its own method.
        mean_of_all: The row of the mean of all heads with the lower error of the two methods.
        num_pairs: Pairs that were measured.
        num_links: Hand-made links in them.
    """

    rows: list[LinkRow]
    configured: LinkRow
    mean_of_all: LinkRow
    num_pairs: int
    num_links: int


def evaluate_links(model: LoadedModel, corpus: Corpus, hand: HandAligned) -> AlignmentReport:
    """Returns the error of each head, of the mean of all, of the configured choice and of fast_align.

    All of the model's links are read from attention by one rule, `alignment.mutual_links`. Its input is the sentences' words
    joined by spaces. fast_align learns from the training and dev set, in small letters and with punctuation apart as in the
    sentences, and from the sentences themselves.

    Args:
        model: The model, in float32.
        corpus: What it was trained on.
        hand: The sentences.
    """
    attended = attend_pairs(model.transformer, model.tokenizer, hand.pairs)
    kept = [index for index, pair in enumerate(attended) if pair is not None]
    pairs, gold = [attended[index] for index in kept], [hand.links[index] for index in kept]

    def row(name: str, heads: Heads, method: AlignmentMethod, weighting: Weighting = "prior") -> LinkRow:
        found = [pair.links(heads, method, weighting) for pair in pairs if pair is not None]
        return LinkRow(name, method, score_links(found, gold))

    config = model.config
    heads = [
        row(f"layer {layer}, head {head}", ((layer, head),), method)
        for layer, head in every_head(config)
        for method in _METHODS
    ]
    means = [row("mean of all heads", every_head(config), method) for method in _METHODS]
    configured = [
        row("configured choice", aligning_heads(config), method, weighting_of(config)) for method in _METHODS
    ]
    others = [
        LinkRow(name, "", score_links([links[index] for index in kept], gold))
        for name, links in _fast_align(corpus, hand.pairs)
    ]
    return AlignmentReport(
        rows=[*heads, *means, *configured, *others],
        configured=next(one for one in configured if one.method == method_of(config)),
        mean_of_all=min(means, key=lambda one: one.scores.aer),
        num_pairs=len(kept),
        num_links=sum(map(len, gold)),
    )


def _fast_align(corpus: Corpus, pairs: Sequence[Pair]) -> Iterator[tuple[str, list[Links]]]:
    sentences = [(pair.source.split(), pair.target.split()) for pair in pairs]
    learnt = [(_tokens(pair.source), _tokens(pair.target)) for pair in (*corpus.train, *corpus.dev)]
    aligner = FastAlign([*learnt, *sentences])
    yield "fast_align, grow-diag-final-and", aligner.symmetric(sentences)
    forward, backward = aligner.directions(sentences)
    yield "fast_align, intersection", [a & b for a, b in zip(forward, backward, strict=True)]
    yield "fast_align, to the target", forward
    yield "fast_align, to the source", backward


def _tokens(text: str) -> list[str]:
    """Returns a text as the hand-aligned sentences are written: in small letters, punctuation apart."""
    return re.findall(r"\w+(?:[-'’]\w+)*|[^\w\s]", text.lower())
