"""Sentences of one width and one kind of search: the tensors of their rows around the plain data of their searches.

Shapes: N sentences, W rows of each, R rows (N × W), V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Collection
from collections.abc import Sequence as SequenceOf
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from dragoman_model.beams import BeamSearch, RowSearch
from dragoman_model.cache import DecoderCache, least_moves
from dragoman_model.constraints import FREE, Constraint, constraint, is_constrained
from dragoman_model.inference import InferenceModel
from dragoman_model.plan import FailedSentence, FinishedSentence, Progress
from dragoman_model.predictions import Expansion, Predictions
from dragoman_model.search import ban, best_tokens, penalise, sample
from dragoman_model.source_encoding import EncodedSources

Search = TypeVar("Search", RowSearch, BeamSearch)

_DTYPES = {"f": torch.float32, "q": torch.long}  # of arrays


class Group(ABC, Generic[Search]):
    """Some of the batch's sentences, whose rows stand together.

    Attributes:
        cache: What the decoder keeps of them.
        last_ids: The token that each row reads next, (R,).
        searches: One for each sentence.
    """

    def __init__(self, model: InferenceModel, cache: DecoderCache) -> None:
        """Starts without sentences, on an empty cache."""
        self.cache = cache
        self.searches: list[Search] = []
        self.last_ids = torch.empty(0, dtype=torch.long, device=model.device)
        self._model = model
        self._eos_id = model.config.eos_id
        self._unwritten_ids = model.config.unwritten_ids
        self._is_constrained = False
        self._reports = False
        self._samples = False
        self._failed: dict[int, FailedSentence] = {}  # by id, until they are taken

    def expansion(self) -> Expansion | None:
        """Returns what the next step is asked for; None where the best tokens are enough."""
        return None

    @abstractmethod
    def advance(self, predictions: Predictions) -> None:
        """Chooses the next token of every row from what the step says of them."""

    def admit(self, encoded: EncodedSources, indices: SequenceOf[int], searches: list[Search]) -> None:
        """Takes sentences in: those of ``encoded`` at ``indices``, and the search of each."""
        self._model.admit(self.cache, encoded, indices)
        starts = self.last_ids.new_full(
            (len(searches) * self.cache.width,), self._model.config.decoder_start_id
        )
        self.last_ids = torch.cat((self.last_ids, starts))
        self.searches += searches
        self._is_constrained |= any(is_constrained(search.sequence) for search in searches)
        self._reports |= any(search.sequence.report_progress for search in searches)
        self._samples |= any(search.sequence.options.is_sampling for search in searches)

    def remove(self, ids: Collection[int]) -> None:
        """Drops sentences by id; unknown ids are passed over."""
        self._keep([index for index, s in enumerate(self.searches) if s.sequence.id not in ids])

    def take_ended(self) -> tuple[list[FinishedSentence], list[FailedSentence]]:
        """Returns the sentences that have finished and those that failed, and lets go of their rows."""
        ended = [search for search in self.searches if search.is_done]
        if not ended:
            return [], []
        finished = []
        for search in ended:
            if search.sequence.id not in self._failed:
                try:
                    finished.append(search.result())
                except Exception as error:
                    self._give_up(search, error)
        failed, self._failed = list(self._failed.values()), {}
        self._keep([index for index, search in enumerate(self.searches) if not search.is_done])
        return finished, failed

    def progress(self) -> list[Progress]:
        """Returns how far the sentences are that asked for it."""
        if not self._reports:
            return []
        return [
            Progress(search.sequence.id, tuple(search.stable()))
            for search in self.searches
            if search.sequence.report_progress
        ]

    def _give_up(self, search: Search, error: Exception) -> None:
        """Ends one sentence because of an error of its own, so that the others of the batch go on."""
        search.is_done = True
        self._failed[search.sequence.id] = FailedSentence(search.sequence.id, error)

    def _keep(self, sentences: list[int]) -> None:
        if len(sentences) == len(self.searches):
            return
        sentences = least_moves(sentences)
        self.cache.select(sentences)
        indices = torch.tensor(sentences, dtype=torch.long, device=self.last_ids.device)
        self.last_ids = self.last_ids.view(-1, self.cache.width)[indices].flatten()
        self.searches = [self.searches[index] for index in sentences]
        # Most often none of them holds, and then none has to be asked.
        self._is_constrained = self._is_constrained and any(is_constrained(s.sequence) for s in self.searches)
        self._reports = self._reports and any(s.sequence.report_progress for s in self.searches)
        self._samples = self._samples and any(s.sequence.options.is_sampling for s in self.searches)

    def _constraints(self) -> SequenceOf[Constraint]:
        """Returns what holds for each row's next token, or nothing where nothing can hold."""
        if not self._is_constrained:
            return ()
        constraints: list[Constraint] = []
        free = [FREE] * self.cache.width
        for search in self.searches:
            if is_constrained(search.sequence):
                constraints += [
                    constraint(search.sequence, written, self._eos_id) for written in search.written()
                ]
            else:
                constraints += free
        return constraints


class RowGroup(Group[RowSearch]):
    """Sentences whose rows each take their best token, or draw one."""

    def advance(self, predictions: Predictions) -> None:
        """Chooses the next token of every row from what the step says of them."""
        constraints = self._constraints()
        self.last_ids, log_probs = predictions.best()
        # One wait for the device a step: what it waits for is the step's own work.
        token_ids, values = self.last_ids.tolist(), log_probs.tolist()
        if not constraints and (self._samples or not self._unwritten_ids.isdisjoint(token_ids)):
            constraints = [FREE] * len(token_ids)
        # The best of all is as good as always allowed; to look for another among few rows takes as long as for all of them.
        bound = self._bound_rows(constraints, token_ids)
        if bound:
            self._choose_again(predictions, [constraints[row] for row in bound], bound, log_probs)
            token_ids, values = self.last_ids.tolist(), log_probs.tolist()
        width = self.cache.width
        for index, search in enumerate(self.searches):
            try:
                rows = slice(index * width, (index + 1) * width)
                search.advance(token_ids[rows], values[rows])
            except Exception as error:
                self._give_up(search, error)

    def _bound_rows(self, constraints: SequenceOf[Constraint], token_ids: SequenceOf[int]) -> list[int]:
        """Returns the rows whose best token may not be, or that draw theirs."""
        if not constraints:
            return []
        is_drawn = [search.noise is not None for search in self.searches for _ in range(self.cache.width)]
        return [
            row
            for row, (one, token_id) in enumerate(zip(constraints, token_ids, strict=True))
            if is_drawn[row]
            or token_id in self._unwritten_ids
            or (one is not FREE and not one.allows(token_id))
        ]

    def _choose_again(
        self,
        predictions: Predictions,
        constraints: SequenceOf[Constraint],
        bound: list[int],
        log_probs: Tensor,
    ) -> None:
        """Puts what is allowed, or what is drawn, in the place of the bound rows' best tokens and of their log-probabilities."""
        logits = predictions.logits(bound)
        allowed = ban(penalise(logits, constraints), constraints, self._eos_id, self._unwritten_ids)
        self.last_ids[bound] = best_tokens(allowed)
        if self._samples:
            self._draw(allowed, bound)
        log_probs[bound] = self._model.log_probabilities(logits, self.last_ids[bound])

    def _draw(self, allowed: Tensor, bound: list[int]) -> None:
        """Puts a drawn token in the place of the best one where a sentence samples; its rows are bound, too."""
        rows: list[int] = []
        noise: list[float] = []
        settings: list[tuple[int, float, float]] = []
        for index, search in enumerate(self.searches):
            if search.noise is None:
                continue
            options = search.sequence.options
            for row in range(self.cache.width):
                rows.append(index * self.cache.width + row)
                noise.append(search.noise.at(row, search.num_steps))
                settings.append((options.sampling_topk, options.sampling_topp, options.sampling_temperature))
        device = allowed.device
        places = {row: place for place, row in enumerate(bound)}
        top_k, top_p, temperature = torch.tensor(settings, dtype=torch.float64, device=device).unbind(1)
        drawn = sample(
            allowed if len(rows) == len(bound) else allowed[[places[row] for row in rows]],
            top_k,
            top_p,
            temperature,
            torch.tensor(noise, dtype=torch.float64, device=device),
        )
        self.last_ids[rows] = drawn


class BeamGroup(Group[BeamSearch]):
    """Sentences whose rows are the beams of one search each."""

    def expansion(self) -> Expansion:
        """Returns what the next step is asked for: twice as many continuations as there are beams."""
        sums = [sum_ for search in self.searches for sum_ in search.sums]
        width = self.cache.width
        return Expansion(self._tensor("f", sums).view(-1, width), 2 * width)

    def advance(self, predictions: Predictions) -> None:
        """Chooses each sentence's next hypotheses from what the step says of their rows."""
        width = self.cache.width
        constraints = self._constraints()
        parents, tokens, ranks, log_probs = predictions.expand(constraints)
        token_lists = tokens.tolist()
        if not constraints and not all(map(self._unwritten_ids.isdisjoint, token_lists)):
            parents, tokens, ranks, log_probs = predictions.expand([FREE] * self.cache.num_rows)
            token_lists = tokens.tolist()
        rank_lists = ranks.tolist()
        candidates = zip(
            parents.tolist(), token_lists, rank_lists, rank_lists if log_probs is ranks else log_probs.tolist(),
            strict=True,
        )  # fmt: skip
        sources: list[int] = []
        targets: list[int] = []
        for index, (search, columns) in enumerate(zip(self.searches, candidates, strict=True)):
            try:
                moves = search.advance(*columns)
            except Exception as error:
                self._give_up(search, error)
                continue
            for source, target in moves:
                sources.append(index * width + source)
                targets.append(index * width + target)
        if sources:
            self.cache.branch(sources, targets)
        self.last_ids = self._tensor(
            "q", [token_id for search in self.searches for token_id in search.last_ids]
        )

    def _tensor(self, kind: str, numbers: list[Any]) -> Tensor:
        """Returns numbers as a tensor of their device; ``torch.tensor`` takes several times as long."""
        return torch.frombuffer(array(kind, numbers), dtype=_DTYPES[kind]).to(self.last_ids.device)
