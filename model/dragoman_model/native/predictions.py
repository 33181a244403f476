"""What the kernels say of rows' next tokens.

Shapes: R rows, N sentences of one width W (R = N × W), D width, V vocabulary, C continuations of a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dragoman_model.constraints import FREE, Constraint
from dragoman_model.native.structures import Wanted
from dragoman_model.predictions import Expansion, Predictions
from dragoman_model.search import expand

if TYPE_CHECKING:
    from dragoman_model.native.model import NativeModel


class NativePredictions(Predictions):
    """What a step finds out while the logits are near; whoever wants logits themselves has them computed once more.

    Attributes:
        states: What the map to the vocabulary reads, (R, D); 0 of rows without a hypothesis.
        wanted: Where the step puts its answers.
    """

    def __init__(self, model: NativeModel, num_rows: int, expansion: Expansion | None) -> None:
        self._native = model
        self._expansion = expansion
        self.states = torch.empty((num_rows, model.config.d_model))
        if expansion is None:
            self._tokens = torch.empty(num_rows, dtype=torch.long)
            self._log_probabilities = torch.empty(num_rows)
            self.wanted = Wanted(
                tokens=self._tokens.data_ptr(), log_probabilities=self._log_probabilities.data_ptr()
            )
            return
        sums, count = expansion
        num_sentences, width = sums.shape
        count = min(count, width * model.config.target_vocab_size)
        self._sums = sums.float()
        self._parents = torch.empty((num_sentences, count), dtype=torch.long)
        self._tokens = torch.empty((num_sentences, count), dtype=torch.long)
        self._ranks = torch.empty((num_sentences, count), dtype=torch.float64)
        self.wanted = Wanted(
            self._sums.data_ptr(),
            count,
            self._parents.data_ptr(),
            self._tokens.data_ptr(),
            self._ranks.data_ptr(),
        )

    def logits(self, rows: Sequence[int] | None = None) -> Tensor:
        """Returns the logits of all rows or of some, (R, V), float32."""
        return self._native.logits(self.states if rows is None else self.states[list(rows)])

    def best(self) -> tuple[Tensor, Tensor]:
        """Returns the token of each row's largest logit, (R,), int64, and its log-probability, (R,), float32."""
        return self._tokens, self._log_probabilities

    def expand(self, constraints: Sequence[Constraint]) -> tuple[Tensor, ...]:
        """Returns the continuations that the step was asked for, as `search.expand` does."""
        parents, tokens, ranks = self._parents, self._tokens, self._ranks
        config = self._native.config
        bound = _bound_sentences(constraints, parents, tokens, config.unwritten_ids)
        if not bound:
            return parents, tokens, ranks, ranks
        # These once more, with what holds for them.
        width, log_probs = self._sums.size(1), ranks.clone()
        rows = [index * width + row for index in bound for row in range(width)]
        parts = expand(
            self.logits(rows), [constraints[row] for row in rows], self._sums[bound], ranks.size(1),
            config.eos_id, config.unwritten_ids, self._native.log_softmax,
        )  # fmt: skip
        for whole, part in zip((parents, tokens, ranks, log_probs), parts, strict=True):
            whole[bound] = part.to(whole.dtype)
        return parents, tokens, ranks, log_probs


def _bound_sentences(
    constraints: Sequence[Constraint], parents: Tensor, tokens: Tensor, unwritten_ids: frozenset[int]
) -> list[int]:
    """Returns the sentences, by index, that have a candidate which may not be; parents and tokens are (N, C)."""
    if not constraints:
        return []
    width = len(constraints) // len(parents)
    bound = []
    for index, candidates in enumerate(zip(parents.tolist(), tokens.tolist(), strict=True)):
        held = constraints[index * width : (index + 1) * width]
        if any(
            token in unwritten_ids or (held[parent] is not FREE and not held[parent].allows(token))
            for parent, token in zip(*candidates)
        ):
            bound.append(index)
    return bound
