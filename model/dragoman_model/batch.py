"""The running batch: sentences join and leave between steps, and every step serves all of them.

Plain data goes in (`Plan`) and comes out (`BatchOutput`); tensors stay inside.

Shapes: B rows, S source length, T target length, L layers, H heads.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dragoman_model.cache import DecoderCache
from dragoman_model.search import greedy, log_probabilities
from dragoman_model.transformer import AttentionRecord, Transformer


class FinishReason(enum.Enum):
    """Why the decoding of a sentence ended."""

    EOS = "eos"
    LENGTH = "length"


@dataclass(frozen=True, kw_only=True)
class Sequence:
    """A sentence to decode.

    Attributes:
        id: Names the row in every output; unique among the running rows.
        source_ids: Source tokens, end-of-sentence last.
        max_length: Target tokens at most, without end-of-sentence; at most the model's ``max_target_length`` - 1.
        min_length: Target tokens before end-of-sentence may come; 0 is off.
    """

    id: int
    source_ids: tuple[int, ...]
    max_length: int
    min_length: int = 0


@dataclass(frozen=True, kw_only=True)
class ForcedDecode:
    """A translation whose attention is wanted.

    Attributes:
        id: Names it in the output.
        source_ids: Source tokens, end-of-sentence last.
        target_ids: Target tokens, end-of-sentence last (or the last token made, where decoding hit its length limit).
    """

    id: int
    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one call of `RunningBatch.run` does.

    Attributes:
        remove: Rows to drop first, by id; unknown ids are passed over, since a row may have finished meanwhile.
        admit: Sentences to prefill; they take part in this call's step.
        attend: Forced decodes to run.
    """

    remove: tuple[int, ...] = ()
    admit: tuple[Sequence, ...] = ()
    attend: tuple[ForcedDecode, ...] = ()


class TokenOutput(NamedTuple):
    """The token that a row wrote in this step; with a finish reason the row is gone."""

    id: int
    token_id: int
    log_probability: float
    finish_reason: FinishReason | None


@dataclass(frozen=True)
class AttentionOutput:
    """Result of a `ForcedDecode`.

    Attributes:
        id: The request's.
        cross: Cross-attention weights of each target token's prediction, (L, H, T, S), float32, on the CPU.
        log_probabilities: Of each target token, T of them.
    """

    id: int
    cross: Tensor
    log_probabilities: tuple[float, ...]


@dataclass(frozen=True)
class PhaseStats:
    """What a phase of a call cost.

    Attributes:
        seconds: Wall time.
        rows: Rows computed.
        real_tokens: Tokens computed that stand for text.
        padding_tokens: Positions computed beside them.
    """

    seconds: float
    rows: int
    real_tokens: int
    padding_tokens: int


@dataclass(frozen=True)
class BatchOutput:
    """What one call of `RunningBatch.run` made; a phase that did not run is None."""

    tokens: list[TokenOutput]
    attentions: list[AttentionOutput]
    prefill: PhaseStats | None
    decode: PhaseStats | None


class RunningBatch:
    """The sentences being decoded now, and their caches."""

    def __init__(self, transformer: Transformer) -> None:
        self._transformer = transformer.eval()
        self._config = transformer.config
        self._rows: list[Sequence] = []
        self._lengths: list[int] = []  # tokens each row has written
        self._last_ids = torch.empty(0, dtype=torch.long, device=transformer.device)
        self._cache: DecoderCache | None = None

    @property
    def num_rows(self) -> int:
        """Rows running now."""
        return len(self._rows)

    @torch.inference_mode()
    def run(self, plan: Plan) -> BatchOutput:
        """Drops, prefills and attends as ``plan`` says, then runs one decode step for every row."""
        removed = set(plan.remove)
        self._keep([row.id not in removed for row in self._rows])
        prefill = self._prefill(plan.admit) if plan.admit else None
        attentions = [self._attend(forced) for forced in plan.attend]
        tokens, decode = self._step() if self._rows else ([], None)
        return BatchOutput(tokens, attentions, prefill, decode)

    def clear(self) -> None:
        """Forgets every row, as after a failed run."""
        self._rows, self._lengths, self._cache = [], [], None
        self._last_ids = self._last_ids[:0]

    def _prefill(self, sequences: SequenceOf[Sequence]) -> PhaseStats:
        started = time.perf_counter()
        src_ids = pad_ids([sequence.source_ids for sequence in sequences], self._config.pad_id).to(
            self._last_ids.device
        )
        cache = self._transformer.prefill(src_ids, self._transformer.source_mask(src_ids))
        if self._cache is None:
            self._cache = cache
        else:
            self._cache.concatenate(cache)
        self._rows.extend(sequences)
        self._lengths.extend([0] * len(sequences))
        start_ids = torch.full((len(sequences),), self._config.decoder_start_id, device=self._last_ids.device)
        self._last_ids = torch.cat((self._last_ids, start_ids))
        real = sum(len(sequence.source_ids) for sequence in sequences)
        return PhaseStats(time.perf_counter() - started, len(sequences), real, src_ids.numel() - real)

    def _step(self) -> tuple[list[TokenOutput], PhaseStats]:
        started = time.perf_counter()
        assert self._cache is not None
        logits = self._transformer.step(self._last_ids, self._cache)  # (B, V)
        may_end = None
        if any(length < row.min_length for row, length in zip(self._rows, self._lengths, strict=True)):
            allowed = [
                length >= row.min_length for row, length in zip(self._rows, self._lengths, strict=True)
            ]
            may_end = torch.tensor(allowed, device=logits.device)
        self._last_ids, scores = greedy(logits, self._config.eos_id, may_end)
        # One transfer to the host a step: its wait is what the device's work takes.
        token_ids, log_probs = self._last_ids.tolist(), scores.tolist()
        outputs = []
        for index, (row, token_id, log_prob) in enumerate(zip(self._rows, token_ids, log_probs, strict=True)):
            self._lengths[index] += 1
            outputs.append(TokenOutput(row.id, token_id, log_prob, self._finish_reason(index, token_id)))
        num_rows = len(outputs)
        self._keep([output.finish_reason is None for output in outputs])
        return outputs, PhaseStats(time.perf_counter() - started, num_rows, num_rows, 0)

    def _finish_reason(self, index: int, token_id: int) -> FinishReason | None:
        if token_id == self._config.eos_id:
            return FinishReason.EOS
        if self._lengths[index] >= self._rows[index].max_length:
            return FinishReason.LENGTH
        return None

    def _attend(self, forced: ForcedDecode) -> AttentionOutput:
        device = self._last_ids.device
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

    def _keep(self, kept: SequenceOf[bool]) -> None:
        if all(kept):
            return
        indices = [index for index, keep in enumerate(kept) if keep]
        self._rows = [self._rows[index] for index in indices]
        self._lengths = [self._lengths[index] for index in indices]
        if not indices:
            self._cache = None
            self._last_ids = self._last_ids[:0]
            return
        assert self._cache is not None
        rows = torch.tensor(indices, device=self._last_ids.device)
        self._cache.select(rows)
        self._last_ids = self._last_ids[rows]


def pad_ids(sequences: SequenceOf[SequenceOf[int]], pad_id: int) -> Tensor:
    """Returns token ids as one matrix, (B, S), int64, padded at the end."""
    length = max(map(len, sequences))
    return torch.tensor([[*ids, *[pad_id] * (length - len(ids))] for ids in sequences], dtype=torch.long)
