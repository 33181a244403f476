"""Text in, text out: the running batch, driven from one end of a translation to the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.errors import PrefixTooLongError, SentenceTooLongError
from dragoman_model.lengths import max_length_of
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import Hypothesis, Plan
from dragoman_model.plan import Sequence as BatchSequence
from dragoman_model.translation import TextTranslation, assemble, prepare


class Translator:
    """Translates texts in this process, many sentences at once."""

    def __init__(self, model: LoadedModel, *, max_batch_size: int = 64) -> None:
        """Takes a model, with its weights as they are now.

        Args:
            model: From `load_model`.
            max_batch_size: Rows decoded at once, at most, 1 or more; a sentence that takes more runs alone.
        """
        if max_batch_size < 1:
            raise ValueError(f"max_batch_size is {max_batch_size}; it must be 1 or more")
        self._model = model
        self._max_batch_size = max_batch_size
        self._batch = RunningBatch(model.transformer)

    def translate(
        self,
        texts: Iterable[str],
        *,
        sentences: bool = True,
        options: DecodingOptions | None = None,
        target_prefixes: Sequence[str] = (),
        on_progress: Callable[[int, int], object] | None = None,
    ) -> list[TextTranslation]:
        """Returns one translation for each text, in order.

        Args:
            texts: Any texts; a blank one comes back as it is.
            sentences: False takes each text as one sentence.
            options: How to search; None is greedy search. ``max_length`` holds up to the model's own limit.
            target_prefixes: Nothing, or for each text what its translation starts with.
            on_progress: Called after a step that finished sentences, with how many are done and how many there are.

        Raises:
            SentenceTooLongError: A sentence has more tokens than the model takes; nothing was translated.
            PrefixTooLongError: A prefix leaves no room for a translation; nothing was translated.
        """
        texts = list(texts)
        options = options or DecodingOptions()
        prepared = []
        for index, (text, prefix) in enumerate(zip(texts, target_prefixes or [""] * len(texts), strict=True)):
            try:
                ready = prepare(self._model, text, sentences=sentences, target_prefix=prefix)
                if ready.source_ids:
                    first_length = len(ready.source_ids[0])
                    max_length_of(self._model.config, options, first_length, len(ready.prefix_ids))
            except (SentenceTooLongError, PrefixTooLongError) as error:
                error.text_index = index
                raise
            prepared.append(ready)
        sources = [ids for text in prepared for ids in text.source_ids]
        prefixes = [
            text.prefix_ids if index == 0 else ()
            for text in prepared
            for index in range(len(text.source_ids))
        ]
        results = iter(self.decode(sources, options=options, prefixes=prefixes, on_progress=on_progress))
        return [
            assemble(self._model, text, list(itertools.islice(results, len(text.source_ids))))
            for text in prepared
        ]

    def decode(
        self,
        sources: Sequence[tuple[int, ...]],
        *,
        options: DecodingOptions | None = None,
        prefixes: Sequence[tuple[int, ...]] = (),
        on_progress: Callable[[int, int], object] | None = None,
    ) -> list[tuple[Hypothesis, ...]]:
        """Returns each tokenised sentence's hypotheses, best first, in the order of the sentences.

        Longest first: rows of like length run together, and the long ones do not stand alone at the end.
        """
        options = (options or DecodingOptions()).with_seed()
        try:
            return self._decode(sources, options, prefixes, on_progress)
        except BaseException:
            self._batch.clear()
            raise

    def _decode(
        self,
        sources: Sequence[tuple[int, ...]],
        options: DecodingOptions,
        prefixes: Sequence[tuple[int, ...]],
        on_progress: Callable[[int, int], object] | None,
    ) -> list[tuple[Hypothesis, ...]]:
        batch = self._batch
        max_sentences = max(1, self._max_batch_size // options.num_rows)
        waiting = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        results: dict[int, tuple[Hypothesis, ...]] = {}
        while waiting or batch.num_sentences:
            admitted = []
            free = max_sentences - batch.num_sentences
            # In groups, since a prefill of a few rows costs nearly as much as one of many.
            if free >= min(len(waiting), max(1, max_sentences // 4)):
                admitted = [waiting.pop() for _ in range(min(free, len(waiting)))]
            sequences = tuple(
                self._sequence(index, sources[index], options, prefixes[index] if prefixes else ())
                for index in admitted
            )
            finished = batch.run(Plan(admit=sequences)).finished
            results.update((sentence.id, sentence.hypotheses) for sentence in finished)
            if on_progress and finished:
                on_progress(len(results), len(sources))
        return [results[index] for index in range(len(sources))]

    def _sequence(
        self, index: int, source_ids: tuple[int, ...], options: DecodingOptions, prefix_ids: tuple[int, ...]
    ) -> BatchSequence:
        return BatchSequence(
            id=index,
            source_ids=source_ids,
            max_length=max_length_of(self._model.config, options, len(source_ids), len(prefix_ids)),
            options=options,
            prefix_ids=prefix_ids,
            numbers=self._model.tokenizer.numbers(source_ids) if options.keep_numbers else None,
        )
