"""How the next token is chosen from the logits.

Shapes: B rows of the running batch, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor


def greedy(logits: Tensor, eos_id: int, may_end: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns the likeliest next token of each row and its log-probability under the unmodified model.

    Args:
        logits: (B, V).
        eos_id: End-of-sentence.
        may_end: False where a row must go on, (B,); None where all may end.

    Returns:
        Token ids, (B,), int64, and their log-probabilities, (B,), float32.
    """
    logits = logits.float()
    candidates = logits
    if may_end is not None:
        candidates = logits.clone()
        candidates[:, eos_id].masked_fill_(~may_end, -torch.inf)
    token_ids = candidates.argmax(dim=-1)
    return token_ids, log_probabilities(logits, token_ids)


def log_probabilities(logits: Tensor, token_ids: Tensor) -> Tensor:
    """Returns log p of chosen tokens, (…), float32, from logits, (…, V), and token ids, (…)."""
    logits = logits.float()
    return logits.gather(-1, token_ids[..., None]).squeeze(-1) - logits.logsumexp(dim=-1)
