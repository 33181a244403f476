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

from dragoman_model.attention_maps import mean_of_heads
from dragoman_model.beams import BeamSearch, RowSearch
from dragoman_model.cache import DecoderCache
from dragoman_model.direct_logits import direct_logits
from dragoman_model.groups import BeamGroup, Group, RowGroup
from dragoman_model.native.model import inference_model
from dragoman_model.plan import (
    AttentionOutput,
    BatchOutput,
    FailedSentence,
    FinishedSentence,
    ForcedDecode,
    PhaseStats,
    Plan,
    Sequence,
)
from dragoman_model.search import log_probabilities
from dragoman_model.selection import AttentionKind
from dragoman_model.source_encoding import EncodedSources
from dragoman_model.transformer import AttentionRecord, Transformer

# Sentences whose searches differ in kind or width, or that may have to stand still apart, can't share a group.
_Kind = tuple[bool, int, int]


class RunningBatch:
    """The sentences being decoded now, and their caches."""

    def __init__(self, transformer: Transformer) -> None:
        self._transformer = transformer.eval()
        self._model = inference_model(transformer)
        self._config = transformer.config
        self._groups: dict[_Kind, Group[Any]] = {}
        self._spare_caches: dict[_Kind, DecoderCache] = {}  # empty, last used last

    @property
    def kernels(self) -> str:
        """What computes, as `InferenceModel.kernels` says."""
        return self._model.kernels

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
        """Drops, prefills and attends as ``plan`` says, then runs one decode step for every row that isn't held."""
        if plan.remove:
            for group in self._groups.values():
                group.remove(set(plan.remove))
            self._drop_empty_groups()
        failed: list[FailedSentence] = []
        prefill = self._prefill(plan.admit, failed) if plan.admit else None
        attentions = self._attend_all(plan.attend, failed)
        groups = [group for (_, _, lane), group in self._groups.items() if lane not in plan.hold]
        finished, decode = self._step(groups, failed) if groups else ([], None)
        progress = [one for group in groups for one in group.progress()]
        return BatchOutput(finished, attentions, prefill, decode, failed, progress)

    def clear(self) -> None:
        """Forgets every row, as after a failed run."""
        self._groups = {}
        self._spare_caches = {}

    def _prefill(self, sequences: SequenceOf[Sequence], failed: list[FailedSentence]) -> PhaseStats:
        started = time.perf_counter()
        encoded = self._model.encode([sequence.source_ids for sequence in sequences])
        by_kind: dict[_Kind, list[int]] = {}
        for index, sequence in enumerate(sequences):
            by_kind.setdefault(_kind(sequence), []).append(index)
        for kind, indices in by_kind.items():
            self._admit(kind, sequences, encoded, indices, failed)
        real = sum(len(sequence.source_ids) for sequence in sequences)
        return PhaseStats(time.perf_counter() - started, len(sequences), real, 0)

    def _admit(
        self,
        kind: _Kind,
        sequences: SequenceOf[Sequence],
        encoded: EncodedSources,
        indices: list[int],
        failed: list[FailedSentence],
    ) -> None:
        """Takes the sequences at ``indices`` into the group of their kind."""
        has_beams, width, _ = kind
        searches: list[Any] = []
        rows: list[int] = []
        for index in indices:
            try:
                searches.append(
                    (BeamSearch if has_beams else RowSearch)(sequences[index], self._config.eos_id)
                )
                rows.append(index)
            except Exception as error:
                failed.append(FailedSentence(sequences[index].id, error))
        if not searches:
            return
        if kind not in self._groups:
            cache = self._spare_caches.pop(kind, None) or self._model.empty_cache(width)
            self._groups[kind] = (BeamGroup if has_beams else RowGroup)(self._model, cache)
        self._groups[kind].admit(encoded, rows, searches)

    def _step(
        self, groups: list[Group[Any]], failed: list[FailedSentence]
    ) -> tuple[list[FinishedSentence], PhaseStats]:
        started = time.perf_counter()
        sizes = [group.cache.num_rows for group in groups]
        last_ids = groups[0].last_ids if len(groups) == 1 else torch.cat([group.last_ids for group in groups])
        predictions = self._model.predict(
            last_ids,
            *(group.cache for group in groups),
            expansions=[group.expansion() for group in groups],
        )
        finished = []
        for group, told in zip(groups, predictions, strict=True):
            group.advance(told)
            ended = group.take_ended()
            finished += ended[0]
            failed += ended[1]
        self._drop_empty_groups()
        num_rows = sum(sizes)
        return finished, PhaseStats(time.perf_counter() - started, num_rows, num_rows, 0)

    def _drop_empty_groups(self) -> None:
        for kind in [kind for kind, group in self._groups.items() if not group.searches]:
            # The next sentences of this kind find the memory there; of many kinds only the last used keep theirs.
            spare_bytes = 0
            for other, spare in reversed(list(self._spare_caches.items())):
                spare_bytes += spare.size_bytes
                if spare_bytes > self._model.spare_bytes:
                    del self._spare_caches[other]
            self._spare_caches[kind] = self._groups.pop(kind).cache

    def _attend_all(
        self, attends: SequenceOf[ForcedDecode], failed: list[FailedSentence]
    ) -> list[AttentionOutput]:
        attentions = []
        for forced in attends:
            try:
                attentions.append(self._attend(forced))
            except Exception as error:  # one that is too large for the memory, say
                failed.append(FailedSentence(forced.id, error))
        return attentions

    def _attend(self, forced: ForcedDecode) -> AttentionOutput:
        device = self._transformer.device
        src_ids = torch.tensor([forced.source_ids], device=device)
        target_ids = torch.tensor([forced.target_ids], device=device)
        start = torch.full((1, 1), self._config.decoder_start_id, device=device)
        src_mask = self._transformer.source_mask(src_ids)
        record = AttentionRecord()
        wants_encoder = AttentionKind.ENCODER_SELF in forced.kinds
        # Without its weights the encoder runs the form that serves.
        memory = self._transformer.encode(src_ids, src_mask, record if wants_encoder else None)
        logits = self._transformer.decode(
            torch.cat((start, target_ids[:, :-1]), dim=1), memory, src_mask, record
        )
        wants_decoder = AttentionKind.DECODER_SELF in forced.kinds
        cross = _stacked(record.cross)
        return AttentionOutput(
            forced.id,
            mean_of_heads(cross, forced.heads)[None, None] if forced.heads else cross,
            tuple(log_probabilities(logits, target_ids)[0].tolist()),
            cross_mean=cross.mean((0, 1)),
            encoder_self=_stacked(record.encoder_self) if wants_encoder else None,
            decoder_self=_stacked(record.decoder_self) if wants_decoder else None,
            direct_logits=self._direct_logits(forced, memory, record) if forced.heads else None,
        )

    def _direct_logits(self, forced: ForcedDecode, memory: Tensor, record: AttentionRecord) -> Tensor:
        target_ids = torch.tensor(forced.target_ids, device=memory.device)
        (states,) = record.decoder_states
        return direct_logits(self._transformer, memory, states, target_ids, forced.heads).cpu()


def _stacked(layers: SequenceOf[Tensor]) -> Tensor:
    """Returns the weights of one sentence's layers, (1, H, T, S) each, as (L, H, T, S), float32, on the CPU."""
    return torch.cat(list(layers)).float().cpu()


def _kind(sequence: Sequence) -> _Kind:
    return sequence.options.beam_size > 1, sequence.options.num_rows, sequence.lane


def pad_ids(sequences: SequenceOf[SequenceOf[int]], pad_id: int) -> Tensor:
    """Returns token ids as one matrix, (B, S), int64, padded at the end."""
    length = max(map(len, sequences))
    return torch.tensor([[*ids, *[pad_id] * (length - len(ids))] for ids in sequences], dtype=torch.long)
