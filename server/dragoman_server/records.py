"""What the metrics are told of sentences: how long they waited, when they had their first token, how they ended."""

from __future__ import annotations

from collections.abc import Callable

from dragoman_model.plan import FinishedSentence
from dragoman_server.metrics import ModelMetrics
from dragoman_server.request import Decode
from dragoman_server.sentences import CallState, Sentence


class SentenceRecords:
    """Keeps the account of a scheduler's sentences.

    Args:
        metrics: Where they are recorded.
        clock: Seconds that only grow.
    """

    def __init__(self, metrics: ModelMetrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._first_step: list[Sentence] = []  # those whose first step is on its way

    def start_decoding(self, sentence: Sentence, work: Decode) -> None:
        """Takes note that a sentence joins the batch."""
        # Nobody waits for the first token of a stream's item, or of what is only scored.
        if sentence.state.call.stream is None and not work.is_given:
            self._first_step.append(sentence)
        self._start(sentence)

    def start_attention(self, sentence: Sentence) -> None:
        """Takes note that a sentence's attention is computed at the next step."""
        self._start(sentence)

    def end_step(self, now: float) -> None:
        """Takes note that a step has ended, and with it what was the first of some sentences."""
        for sentence in self._first_step:
            if not sentence.state.has_token:
                sentence.state.has_token = True
                self._metrics.time_to_first_token_seconds.observe(now - sentence.state.call.arrived)
        self._first_step = []

    def end_decoding(self, sentence: Sentence, finished: FinishedSentence) -> None:
        """Counts a sentence that was translated or scored."""
        work = sentence.work
        if isinstance(work, Decode) and work.is_given:
            self._metrics.count_sentences("score")
        else:
            self._metrics.observe_sentence(finished, len(work.source_ids))

    def end_attention(self, sentence: Sentence) -> None:
        """Counts a sentence whose attention alone was asked for."""
        if not sentence.state.call.is_sample:
            self._metrics.count_sentences("attention")

    def drop(self, state: CallState, reason: str | None) -> None:
        """Counts the sentences of a call that ends before its time.

        Args:
            state: The call.
            reason: What they are counted as; None is not at all.
        """
        self._first_step = [sentence for sentence in self._first_step if sentence.state is not state]
        if reason is not None and not state.call.is_sample:
            self._metrics.count_sentences(reason, state.results.count(None))

    def _start(self, sentence: Sentence) -> None:
        if sentence.state.results[sentence.index] is not None or sentence.state.call.is_sample:
            return  # counted when it was translated; a sample is not at all
        if sentence.state.call.stream is None:  # a stream's items wait on purpose
            self._metrics.queue_wait_seconds.observe(self._clock() - sentence.state.queued)
        self._metrics.source_tokens.inc(len(sentence.work.source_ids))
