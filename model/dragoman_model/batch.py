"""The running batch: sentences join and leave between steps, and every step serves all of them.

Plain data goes in (`Plan`) and comes out (`BatchOutput`); tensors stay inside.

Shapes: B rows, S source length, T target length, V vocabulary, L layers, H heads.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as SequenceOf
from typing import Any

import torch
from torch import Tensor

from dragoman_model.beams import BeamSearch, RowSearch
from dragoman_model.cache import DecoderCache
from dragoman_model.groups import BeamGroup, Group, RowGroup
from dragoman_model.layers import joined
from dragoman_model.plan import (
    AttentionOutput,
    BatchOutput,
    FinishedSentence,
    ForcedDecode,
    PhaseStats,
    Plan,
    Sequence,
)
from dragoman_model.search import log_probabilities
from dragoman_model.transformer import AttentionRecord, Transformer

# Sentences whose searches differ in kind or width can't share a group.
_Kind = tuple[bool, int]


class RunningBatch:
    """The sentences being decoded now, and their caches."""

    def __init__(self, transformer: Transformer) -> None:
        self._transformer = transformer.eval()
        self._config = transformer.config
        self._groups: dict[_Kind, Group[Any]] = {}

    @property
    def num_rows(self) -> int:
        """Rows running now: for a sentence as many as it has beams or samples."""
        return sum(group.cache.num_rows for group in self._groups.values())

    @property
    def num_sentences(self) -> int:
        """Sentences running now."""
        return sum(len(group.searches) for group in self._groups.values())

    @torch.inference_mode()
    def run(self, plan: Plan) -> BatchOutput:
        """Drops, prefills and attends as ``plan`` says, then runs one decode step for every row."""
        if plan.remove:
            for group in self._groups.values():
                group.remove(set(plan.remove))
            self._drop_empty_groups()
        prefill = self._prefill(plan.admit) if plan.admit else None
        attentions = [self._attend(forced) for forced in plan.attend]
        finished, decode = self._step() if self._groups else ([], None)
        return BatchOutput(finished, attentions, prefill, decode)

    def clear(self) -> None:
        """Forgets every row, as after a failed run."""
        self._groups = {}

    def _prefill(self, sequences: SequenceOf[Sequence]) -> PhaseStats:
        started = time.perf_counter()
        src_ids = pad_ids([sequence.source_ids for sequence in sequences], self._config.pad_id).to(
            self._transformer.device
        )
        cache = self._transformer.prefill(src_ids, self._transformer.source_mask(src_ids))
        by_kind: dict[_Kind, list[int]] = {}
        for index, sequence in enumerate(sequences):
            by_kind.setdefault(_kind(sequence), []).append(index)
        for kind, indices in by_kind.items():
            group = self._start(kind, [sequences[index] for index in indices], cache, indices)
            if kind in self._groups:
                self._groups[kind].join(group)
            else:
                self._groups[kind] = group
        real = sum(len(sequence.source_ids) for sequence in sequences)
        return PhaseStats(time.perf_counter() - started, len(sequences), real, src_ids.numel() - real)

    def _start(
        self, kind: _Kind, sequences: list[Sequence], cache: DecoderCache, indices: list[int]
    ) -> Group[Any]:
        has_beams, width = kind
        if width > 1 or len(indices) < cache.num_rows:
            cache = cache.at_step_zero(torch.tensor(indices, device=self._transformer.device), width)
        eos_id = self._config.eos_id
        if has_beams:
            return BeamGroup(self._config, cache, [BeamSearch(sequence, eos_id) for sequence in sequences])
        return RowGroup(self._config, cache, [RowSearch(sequence, eos_id) for sequence in sequences])

    def _step(self) -> tuple[list[FinishedSentence], PhaseStats]:
        started = time.perf_counter()
        groups = list(self._groups.values())
        sizes = [group.cache.num_rows for group in groups]
        last_ids = joined([group.last_ids for group in groups])
        logits = self._transformer.step(last_ids, *(group.cache for group in groups))  # (B, V)
        finished = []
        for group, rows in zip(groups, logits.split(sizes), strict=True):
            group.advance(rows)
            finished += group.take_finished()
        self._drop_empty_groups()
        num_rows = sum(sizes)
        return finished, PhaseStats(time.perf_counter() - started, num_rows, num_rows, 0)

    def _drop_empty_groups(self) -> None:
        self._groups = {kind: group for kind, group in self._groups.items() if group.searches}

    def _attend(self, forced: ForcedDecode) -> AttentionOutput:
        device = self._transformer.device
        src_ids = torch.tensor([forced.source_ids], device=device)
        target_ids = torch.tensor([forced.target_ids], device=device)
        start = torch.full((1, 1), self._config.decoder_start_id, device=device)
        src_mask = self._transformer.source_mask(src_ids)
        record = AttentionRecord()
        memory = self._transformer.encode(src_ids, src_mask)
        logits = self._transformer.decode(
            torch.cat((start, target_ids[:, :-1]), dim=1), memory, src_mask, record
        )
        cross = torch.cat(record.cross).float().cpu()  # (L, H, T, S)
        return AttentionOutput(forced.id, cross, tuple(log_probabilities(logits, target_ids)[0].tolist()))


def _kind(sequence: Sequence) -> _Kind:
    return sequence.options.beam_size > 1, sequence.options.num_rows


def pad_ids(sequences: SequenceOf[SequenceOf[int]], pad_id: int) -> Tensor:
    """Returns token ids as one matrix, (B, S), int64, padded at the end."""
    length = max(map(len, sequences))
    return torch.tensor([[*ids, *[pad_id] * (length - len(ids))] for ids in sequences], dtype=torch.long)
