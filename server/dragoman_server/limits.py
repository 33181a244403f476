"""What one call may ask for, and how much may wait and run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CallLimits:
    """What one call may hold and ask for, and what all calls share.

    Attributes:
        max_text_count: Texts.
        max_text_characters: Unicode code points in each.
        max_beam_size: Beams of a search.
        max_num_hypotheses: Translations returned of each text.
        max_sentence_rows: Rows of the batch that one sentence takes: one for each beam or sample.
        max_batch_size: Rows of the batch that all calls share, of each model.
        max_queue_size: Sentences of all calls that may wait, of each model; no call may hold more.
        max_queue_seconds: How long a call may wait for its first row, except a bulk stream's; 0 is as long as it takes.
        max_bulk_streams: TranslateBatch calls that are open at once, of each model.
        max_attention_calls: DumpAttention calls that are served at once, of each model.
    """

    max_text_count: int = 256
    max_text_characters: int = 20_000
    max_beam_size: int = 8
    max_num_hypotheses: int = 8
    max_sentence_rows: int = 8
    max_batch_size: int = 64
    max_queue_size: int = 1024
    max_queue_seconds: float = 0.0
    max_bulk_streams: int = 128
    max_attention_calls: int = 16


@dataclass(frozen=True, kw_only=True)
class SchedulerLimits:
    """How much may wait and run.

    Attributes:
        max_batch_size: Rows that decode at once.
        max_queue_size: Sentences that may wait for a row.
        max_queue_seconds: How long a call may wait for its first row, except a bulk stream's; 0 is as long as it takes.
        max_attention_queue_size: Sentences that may wait for their attention.
        max_prefill_tokens: Source tokens that are encoded in one step; one sentence may always.
        max_prefill_seconds: How long encoding may take in one step, by the measured speed; one sentence may always.
        max_attends_per_step: Sentences whose attention is computed in one step, between two decoding steps.
        max_attend_tokens: Their source and target tokens together; one sentence may always.
        max_admission_delay: Steps that a waiting sentence is held back at most so that several rows come free.
        max_gathering_delay: Steps that it is held back at most, with rows free, so that several join together.
        bulk_share: Of the time, what bulk rows may add to the steps of interactive ones; above 0, below 1.
    """

    max_batch_size: int = 64
    max_queue_size: int = 1024
    max_queue_seconds: float = 0.0
    max_attention_queue_size: int = 64
    max_prefill_tokens: int = 2048
    # A step of a full batch on a CPU: who runs or arrives hardly notices who joins, and the products are large enough
    # to be as fast as they get. A GPU encodes many times max_prefill_tokens in it.
    max_prefill_seconds: float = 0.01
    max_attends_per_step: int = 4
    # Of usual sentences three or four, of the longest one, which alone takes as long as several steps of a full batch.
    max_attend_tokens: int = 128
    max_admission_delay: int = 4
    max_gathering_delay: int = 16
    # A quarter makes steps a third longer on average, which leaves room for all else that bulk work costs a caller before
    # its latency doubles.
    bulk_share: float = 0.25

    @property
    def num_reserved_rows(self) -> int:
        """Rows that either lane leaves to the other."""
        return self.max_batch_size // 8

    @property
    def num_reserved_places(self) -> int:
        """Places in the queue that bulk calls leave to the others."""
        return self.max_queue_size // 8
