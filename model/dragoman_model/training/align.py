"""Which heads of a trained model align best: found against silver links, written into its ``config.json``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dragoman_model.alignment_config import AlignmentConfig
from dragoman_model.checkpoint import CONFIG_FILE, load_model, write_checksums
from dragoman_model.config import ModelConfig
from dragoman_model.tokenizer import Tokenizer
from dragoman_model.training.corpus import Corpus, Pair
from dragoman_model.training.fast_align import FastAlign, Links
from dragoman_model.training.link_quality import AttendedPair, Heads, attend_pairs, score_links
from dragoman_model.transformer import Transformer


@dataclass(frozen=True)
class FoundAlignment:
    """The heads that align best.

    Attributes:
        alignment: They, and how they do.
        aer: Their alignment error rate against the silver links.
        num_pairs: Pairs of the dev set that it was measured on.
    """

    alignment: AlignmentConfig
    aer: float
    num_pairs: int


def find_alignment(transformer: Transformer, tokenizer: Tokenizer, corpus: Corpus) -> FoundAlignment | None:
    """Returns the heads of one layer, the method and the weighting with the lowest error against silver links.

    Silver are the links that both directions of fast_align have, on the dev set; it learns from training and dev set.

    Args:
        transformer: The trained model.
        tokenizer: Its vocabularies.
        corpus: What it was trained on and chosen by.

    Returns:
        None where the dev set has no links.
    """
    aligner = FastAlign(map(plain_words, (*corpus.train, *corpus.dev)))
    silver = aligner.intersection([plain_words(pair) for pair in corpus.dev])
    attended = attend_pairs(transformer, tokenizer, corpus.dev)
    both = [(pair, links) for pair, links in zip(attended, silver, strict=True) if pair and links]
    if not both:
        return None
    pairs, links = [pair for pair, _ in both], [links for _, links in both]
    alignment, aer = choose_heads(transformer.config, pairs, links)
    return FoundAlignment(alignment, aer, len(pairs))


def align_model(directory: Path, corpus: Corpus, device: str = "cpu") -> FoundAlignment | None:
    """Finds the heads of a model in a directory, and writes them into its ``config.json``, where the dev set has links."""
    model = load_model(directory, device=device, precision="float32")
    found = find_alignment(model.transformer, model.tokenizer, corpus)
    if found is not None:
        text = replace(model.config, alignment=found.alignment).to_json()
        (directory / CONFIG_FILE).write_text(text, encoding="utf-8")
        write_checksums(directory)
    return found


def choose_heads(
    config: ModelConfig, pairs: Sequence[AttendedPair], links: Sequence[Links]
) -> tuple[AlignmentConfig, float]:
    """Returns the best choice and its error rate: in each layer the best head, and with it others as long as they help."""
    candidates = [
        _choose_in_layer(AlignmentConfig(layer=layer, heads=(0,), method=method, weighting=weighting),
                         config.num_heads, pairs, links)
        for layer in range(config.num_decoder_layers)
        for method in ("naive", "shifted")
        for weighting in ("prior", "posterior")
    ]  # fmt: skip
    return min(candidates, key=lambda candidate: candidate[1])


def plain_words(pair: Pair) -> tuple[list[str], list[str]]:
    """Returns both sides' words, as white space bounds them, in small letters and without punctuation."""
    return [_plain(word) for word in pair.source.split()], [_plain(word) for word in pair.target.split()]


def _plain(word: str) -> str:
    return re.sub(r"\W+", "", word.lower()) or word


def _choose_in_layer(
    start: AlignmentConfig, num_heads: int, pairs: Sequence[AttendedPair], links: Sequence[Links]
) -> tuple[AlignmentConfig, float]:
    chosen: tuple[int, ...] = ()
    lowest = float("inf")
    while len(chosen) < num_heads:
        rates = {
            head: _error_rate(start, (*chosen, head), pairs, links)
            for head in range(num_heads)
            if head not in chosen
        }
        head = min(rates, key=rates.__getitem__)
        if rates[head] >= lowest:
            break
        chosen, lowest = (*chosen, head), rates[head]
    return replace(start, heads=tuple(sorted(chosen))), lowest


def _error_rate(
    choice: AlignmentConfig, heads: Sequence[int], pairs: Sequence[AttendedPair], links: Sequence[Links]
) -> float:
    every: Heads = tuple((choice.layer, head) for head in heads)
    found = [pair.links(every, choice.method, choice.weighting) for pair in pairs]
    return score_links(found, links).aer
