"""How good word links are, and the attention from which they are read, pair by pair of a set.

Shapes: L layers, H heads, T target length, S source length, V and U words of target and source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman_model.alignment import mutual_links, token_rows, words_of
from dragoman_model.alignment_config import AlignmentMethod, Weighting
from dragoman_model.attention_maps import average_rows, mean_of_heads, sum_columns
from dragoman_model.direct_logits import direct_logits
from dragoman_model.tokenizer import Tokenizer
from dragoman_model.training.corpus import Pair
from dragoman_model.training.fast_align import Links
from dragoman_model.transformer import AttentionRecord, Transformer

Heads = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class LinkScores:
    """How links compare with sure and possible ones (Och and Ney 2003).

    Attributes:
        aer: Alignment error rate, 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|).
        precision: |A ∩ P| / |A|.
        recall: |A ∩ S| / |S|.
    """

    aer: float
    precision: float
    recall: float


def score_links(
    found: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links] | None = None
) -> LinkScores:
    """Returns the scores of a set's links.

    Args:
        found: A, of each pair.
        sure: S.
        possible: P, with S in it; None is S.
    """
    in_sure = sum(len(a & s) for a, s in zip(found, sure, strict=True))
    in_possible = sum(len(a & p) for a, p in zip(found, possible or sure, strict=True))
    num_found, num_sure = sum(map(len, found)), sum(map(len, sure))
    return LinkScores(
        aer=1 - (in_sure + in_possible) / max(num_found + num_sure, 1),
        precision=in_possible / max(num_found, 1),
        recall=in_sure / max(num_sure, 1),
    )


@dataclass(frozen=True)
class AttendedPair:
    """A pair of sentences and the decoder's look at the source while it is forced to write the target.

    Attributes:
        cross: Cross-attention, (L, H, T, S).
        direct_logits: What each head says of each target token, (L, H, T, S).
        source: For each word of the source, the indices of its pieces.
        target: For each word of the target, likewise.
    """

    cross: Tensor
    direct_logits: Tensor
    source: list[tuple[int, ...]]
    target: list[tuple[int, ...]]

    def mass(self, heads: Heads, method: AlignmentMethod, weighting: Weighting) -> Tensor:
        """Returns what `alignment.word_mass` does, by some heads, (V, U + 1)."""
        cross = mean_of_heads(self.cross, heads)
        layers, indices = zip(*heads, strict=True)
        logits = self.direct_logits[list(layers), list(indices)].sum(0)
        rows = token_rows(cross, logits, method, weighting)
        words = sum_columns(average_rows(rows, self.target), self.source)
        return torch.cat((words, 1 - words.sum(-1, keepdim=True)), -1)

    def links(self, heads: Heads, method: AlignmentMethod, weighting: Weighting) -> Links:
        """Returns the links of its words, by number, as the server makes them."""
        found = mutual_links(self.mass(heads, method, weighting))
        return {(source, target) for target, (source, _) in enumerate(found) if source is not None}


@torch.inference_mode()
def attend_pairs(
    transformer: Transformer, tokenizer: Tokenizer, pairs: Sequence[Pair]
) -> list[AttendedPair | None]:
    """Returns the attention of each pair, None where a side is longer than the model takes.

    Words are what white space bounds, in both sides.
    """
    return [_attend(transformer, tokenizer, pair) for pair in pairs]


def _attend(transformer: Transformer, tokenizer: Tokenizer, pair: Pair) -> AttendedPair | None:
    config, device = transformer.config, transformer.device
    source, target = tokenizer.source_pieces(pair.source), tokenizer.given_target_pieces(pair.target)
    if len(source) > config.max_source_length or len(target) > config.max_target_length:
        return None
    src_ids = torch.tensor([[piece.id for piece in source]], device=device)
    target_ids = torch.tensor([piece.id for piece in target], device=device)
    start = torch.full((1,), config.decoder_start_id, device=device)
    mask, record = transformer.source_mask(src_ids), AttentionRecord()
    memory = transformer.encode(src_ids, mask)
    transformer.decode_states(torch.cat((start, target_ids[:-1]))[None], memory, mask, record)
    (states,) = record.decoder_states
    logits = [
        torch.stack(
            [
                direct_logits(transformer, memory, states, target_ids, [(layer, head)])
                for head in range(config.num_heads)
            ]
        )
        for layer in range(config.num_decoder_layers)
    ]
    return AttendedPair(
        torch.cat(record.cross).float().cpu(),
        torch.stack(logits).cpu(),
        [unit.pieces for unit in words_of(source, pair.source)],
        [unit.pieces for unit in words_of(target, pair.target)],
    )
