"""What a step says of its rows' next tokens, and what is asked of it.

Shapes: R rows, N sentences of one width W (R = N × W), V vocabulary, C continuations of a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from dragoman_model.constraints import Constraint
from dragoman_model.search import best_tokens, expand, log_probabilities

if TYPE_CHECKING:
    from dragoman_model.inference import InferenceModel


class Expansion(NamedTuple):
    """What a beam search wants to know: its hypotheses' best continuations.

    Attributes:
        sums: What each live hypothesis has come to, (N, W), float32; −∞ where there is none, and nothing is told of that row.
        num_continuations: Continuations C of each sentence; fewer where there aren't as many.
    """

    sums: Tensor
    num_continuations: int


class Predictions:
    """The logits of some rows' next tokens, and the best of them."""

    def __init__(self, model: InferenceModel, logits: Tensor, expansion: Expansion | None) -> None:
        self._model = model
        self._logits = logits
        self._expansion = expansion

    def logits(self, rows: Sequence[int] | None = None) -> Tensor:
        """Returns the logits of all rows or of some, (R, V), float32."""
        return self._logits.float() if rows is None else self._logits[list(rows)].float()

    def best(self) -> tuple[Tensor, Tensor]:
        """Returns the token of each row's largest logit, (R,), int64, and its log-probability, (R,), float32."""
        logits = self._logits.float()
        tokens = best_tokens(logits)
        return tokens, log_probabilities(logits, tokens)

    def expand(self, constraints: Sequence[Constraint]) -> tuple[Tensor, ...]:
        """Returns the continuations that the step was asked for, as `search.expand` does.

        Without constraints, one for each row, tokens that stand in no translation may be among them.

        Parents and token ids are int64, ranks and log-probabilities float64.
        """
        assert self._expansion is not None
        config = self._model.config
        parents, tokens, ranks, log_probs = expand(
            self.logits(), constraints, *self._expansion, config.eos_id, config.unwritten_ids, self._model.log_softmax
        )  # fmt: skip
        return parents.long(), tokens.long(), ranks, log_probs
