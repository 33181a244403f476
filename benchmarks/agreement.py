"""Whether engines that hold the same weights write the same translations; nothing is worth timing before they do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine_process import EngineProcess, Run, TokenIds

# Share of sentences that must be identical to CTranslate2's.
LEAST_IDENTICAL = {1: 0.99, 4: 0.97}
# Its beam search ends with the fourth finished hypothesis, though a better one may still come; ours when none can. With
# twice the patience it finds what ours finds. What is timed is its default.
PATIENCE = 2.0
MAX_BLEU_DIFFERENCE = 0.3


@dataclass
class Agreement:
    """What was found.

    Attributes:
        lines: What a reader is told.
        holds: Whether everything that could be compared agrees.
        bleu_difference: Our int8's BLEU minus our float32's, greedy; None where either is missing.
    """

    lines: list[str] = field(default_factory=list)
    holds: bool = True
    bleu_difference: float | None = None

    def note(self, text: str, holds: bool) -> None:
        """Adds a line with its verdict."""
        self.lines.append(f"{'agrees' if holds else 'DISAGREES'}: {text}")
        self.holds &= holds


def identical_share(outputs: Sequence[TokenIds], others: Sequence[TokenIds]) -> float:
    """Returns the share of sentences whose tokens are the same.

    One that is the other's beginning counts, too: it has no end-of-sentence, so that it was cut by a limit, which is the
    sentence's own in our engine and the batch's in theirs.
    """
    same = (one[: len(other)] == other[: len(one)] for one, other in zip(outputs, others, strict=True))
    return sum(same) / len(outputs)


def scored_better(run: Run, other: Run) -> tuple[int, int]:
    """Returns how many translations differ, and in how many of them ``run``'s scores higher."""
    different = [
        one_score > other_score
        for one, other_one, one_score, other_score in zip(
            run.outputs, other.outputs, run.scores, other.scores, strict=True
        )
        if one != other_one
    ]
    return len(different), sum(different)


def check_outputs(
    processes: Sequence[EngineProcess],
    count: int,
    beam_sizes: Sequence[int],
    references: Sequence[str],
    decode: Callable[[TokenIds], str],
) -> Agreement:
    """Translates the first ``count`` sentences with each engine and compares.

    Args:
        processes: Engines, with their sentences loaded.
        count: Sentences.
        beam_sizes: Of which greedy search and beam 4 are compared.
        references: Of the sentences; empty where there are none, and then no BLEU is compared.
        decode: From tokens to text.
    """
    from dragoman_model.training.evaluate import score_translations

    agreement = Agreement()
    by_name = {process.name: process for process in processes}
    ours, theirs = by_name.get("dragoman float32"), by_name.get("ctranslate2 float32")
    greedy: dict[str, list[TokenIds]] = {}
    if 1 in beam_sizes:
        # Hugging Face is too slow for all sentences, and no bar asks for its translations.
        for name, process in by_name.items():
            if process.engine != "huggingface":
                greedy[name] = process.run(count, 1, 64, outputs=True).outputs
    if ours and theirs and 1 in beam_sizes:
        share = identical_share(greedy[ours.name], greedy[theirs.name])
        agreement.note(_share_line(1, share, count), share >= LEAST_IDENTICAL[1])
    if ours and theirs and 4 in beam_sizes:
        found = ours.run(count, 4, 32, outputs=True)
        default, patient = (
            theirs.run(count, 4, 32, outputs=True, patience=patience) for patience in (1.0, PATIENCE)
        )
        share = identical_share(found.outputs, patient.outputs)
        different, better = scored_better(found, default)
        agreement.note(
            f"{_share_line(4, share, count)}, given patience {PATIENCE:g}; by its default {different} differ, and ours "
            f"scores higher in {better} of them",
            share >= LEAST_IDENTICAL[4],
        )
    bleu = {
        name: score_translations(list(map(decode, ids)), references).bleu
        for name, ids in greedy.items()
        if references
    }
    for engine in ("dragoman", "ctranslate2"):
        if f"{engine} float32" in bleu and f"{engine} int8" in bleu:
            full, small = bleu[f"{engine} float32"], bleu[f"{engine} int8"]
            if engine == "dragoman":
                agreement.bleu_difference = small - full
            agreement.note(
                f"{engine}, greedy: BLEU {small:.2f} in int8, {full:.2f} in float32 ({small - full:+.2f}, "
                f"within {MAX_BLEU_DIFFERENCE} of it)",
                engine != "dragoman" or abs(small - full) <= MAX_BLEU_DIFFERENCE,
            )
    return agreement


def _share_line(beam_size: int, share: float, count: int) -> str:
    least = LEAST_IDENTICAL[beam_size]
    return f"float32, beam {beam_size}: {share:.1%} of {count} sentences identical to CTranslate2's (at least {least:.0%})"
