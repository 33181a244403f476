"""How the next tokens are chosen from the logits.

Shapes: R rows, N sentences of one width W (R = N × W), V vocabulary, C candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from collections.abc import Sequence as SequenceOf

import torch
from torch import Tensor

from dragoman_model.constraints import Constraint

# Columns of one block of `top_tokens`; near sqrt(V) both of its passes are short.
_BLOCK_COLUMNS = 64


def log_probabilities(logits: Tensor, token_ids: Tensor) -> Tensor:
    """Returns log p of chosen tokens, (…), float32, from logits, (…, V), and token ids, (…)."""
    # On a CPU the one pass of log_softmax takes half the time of logsumexp.
    return logits.float().log_softmax(-1).gather(-1, token_ids[..., None]).squeeze(-1)


def penalise(logits: Tensor, constraints: SequenceOf[Constraint]) -> Tensor:
    """Returns logits, (R, V), lowered for tokens that a row has written; the same tensor where nothing is.

    Positive logits are divided, negative ones multiplied by the row's penalty (Keskar et al. 2019, section 4.1).
    """
    places = [(row, token) for row, c in enumerate(constraints) if c.only is None for token in c.seen]
    if not places:
        return logits
    rows, tokens = torch.tensor(places, device=logits.device).unbind(1)
    penalties = torch.tensor([c.penalty for c in constraints], device=logits.device)[rows]
    seen = logits[rows, tokens]
    penalised = logits.clone()
    penalised[rows, tokens] = torch.where(seen > 0, seen / penalties, seen * penalties)
    return penalised


def ban(
    logits: Tensor, constraints: SequenceOf[Constraint], eos_id: int, unwritten_ids: Collection[int] = ()
) -> Tensor:
    """Returns logits, (R, V), with −∞ where a row may not go; the same tensor where all may go everywhere.

    A row that may not go anywhere may end. To the unwritten tokens none may go, unless it must.
    """
    banned = [(row, token) for row, c in enumerate(constraints) for token in c.banned]
    unwritten = [
        (row, token) for row, c in enumerate(constraints) if c.only is None for token in unwritten_ids
    ]
    kept = [(row, token) for row, c in enumerate(constraints) for token in c.only or ()]
    allowed = logits
    if banned or unwritten:
        rows, tokens = torch.tensor(banned + unwritten, device=logits.device).unbind(1)
        allowed = allowed.clone()
        allowed[rows, tokens] = -torch.inf
    if kept:
        rows, tokens = torch.tensor(kept, device=logits.device).unbind(1)
        values = allowed[rows, tokens]
        allowed = allowed.index_fill(0, rows, -torch.inf)
        allowed[rows, tokens] = values
    if banned:  # without, end-of-sentence is among the others
        stuck = allowed.amax(-1) == -torch.inf
        allowed[:, eos_id] = torch.where(stuck, logits[:, eos_id], allowed[:, eos_id])
    return allowed


def best_tokens(logits: Tensor) -> Tensor:
    """Returns the token of each row's largest logit, (R,), int64, like `torch.argmax`."""
    return top_tokens(logits, 1)[1][:, 0]


def top_tokens(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns the ``count`` largest logits of each row and their tokens, each (R, count), like `torch.topk`.

    The best ``count`` tokens lie in the ``count`` blocks of columns with the largest maxima. To find those takes one plain
    pass over the vocabulary, on a CPU a tenth of what `torch.topk` and `torch.argmax` take.
    """
    num_rows, num_columns = logits.shape
    num_blocks = num_columns // _BLOCK_COLUMNS
    if num_blocks * _BLOCK_COLUMNS != num_columns or num_blocks <= 2 * count:
        return logits.topk(count)
    blocks = logits.view(num_rows, num_blocks, _BLOCK_COLUMNS)
    best_blocks = blocks.amax(-1).topk(count, sorted=False).indices  # (R, count)
    found = blocks.gather(1, best_blocks[..., None].expand(-1, -1, _BLOCK_COLUMNS))
    values, places = found.flatten(1).topk(count)
    tokens = best_blocks.gather(1, places // _BLOCK_COLUMNS) * _BLOCK_COLUMNS + places % _BLOCK_COLUMNS
    return values, tokens


def expand(
    logits: Tensor,
    constraints: SequenceOf[Constraint],
    sums: Tensor,
    count: int,
    eos_id: int,
    unwritten_ids: Collection[int],
    log_softmax: Callable[[Tensor], Tensor],
) -> Tensor:
    """Returns the best continuations of each sentence's live hypotheses, best first.

    They rank by what their hypothesis has come to with them. A token adds its log-probability under the penalised
    logits; what is banned has none, and is not made up for by the others.

    Args:
        logits: Of the unmodified model, (R, V), float32.
        constraints: What holds for each row; empty where nothing does, and then the unwritten tokens are among the others.
        sums: What each live hypothesis has come to, (N, W); −∞ where there is none.
        count: Continuations C of each sentence; fewer where there aren't as many.
        eos_id: End-of-sentence.
        unwritten_ids: Tokens that stand in no translation.
        log_softmax: Gives the log-probabilities of logits.

    Returns:
        Parents (row in the sentence), token ids, rank log-probabilities and log-probabilities under the unmodified model,
        stacked, (4, N, C), float64. A continuation that may not be has rank log-probability −∞.
    """
    num_sentences, width = sums.shape
    penalised = penalise(logits, constraints)
    log_probs = log_softmax(logits)
    choice = log_probs if penalised is logits else log_softmax(penalised)
    choice = ban(choice, constraints, eos_id, unwritten_ids)
    ranks, tokens = top_tokens(choice, min(count, logits.size(1)))  # (R, c)
    totals = ranks.view(num_sentences, width, -1) + sums[..., None]  # (N, W, c)
    best_totals, best = totals.flatten(1).topk(min(count, totals[0].numel()))  # (N, C)
    parents = best // ranks.size(1)
    tokens = tokens.view(num_sentences, -1).gather(1, best)
    ranks = ranks.view(num_sentences, -1).gather(1, best).masked_fill(best_totals == -torch.inf, -torch.inf)
    rows = parents + torch.arange(num_sentences, device=sums.device)[:, None] * width
    return torch.stack([part.double() for part in (parents, tokens, ranks, log_probs[rows, tokens])])


def sample(logits: Tensor, top_k: Tensor, top_p: Tensor, temperature: Tensor, noise: Tensor) -> Tensor:
    """Returns one token drawn for each row, (R,), int64, from what its options leave of the distribution.

    Temperature comes first, then the k likeliest, then of those the fewest that hold the probability p.

    Args:
        logits: (R, V); −∞ is never drawn.
        top_k: Likeliest tokens left, (R,), int64; 0 leaves all.
        top_p: Probability that the tokens left hold at least, (R,), in (0, 1].
        temperature: (R,), above 0.
        noise: Where in the distribution the token lies, (R,), float64, in [0, 1).
    """
    vocab_size = logits.size(1)
    ordered, token_ids = (logits.double() / temperature[:, None]).sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(vocab_size, device=logits.device)
    ordered = ordered.masked_fill(ranks >= torch.where(top_k == 0, vocab_size, top_k)[:, None], -torch.inf)
    probabilities = ordered.softmax(-1)
    likelier = probabilities.cumsum(-1) - probabilities  # mass of the tokens before each
    probabilities = probabilities.masked_fill(likelier >= top_p[:, None], 0.0)
    # Laid out by token id again: two tokens of nearly the same probability may trade places in the order, and a seed must
    # not notice.
    by_id = torch.zeros_like(probabilities).scatter_(1, token_ids, probabilities)
    reached = by_id.cumsum(-1)
    drawn = torch.searchsorted(reached, noise[:, None] * reached[:, -1:], right=True)[:, 0]
    last = by_id.flip(1).ne(0).double().argmax(1)  # rounding must not lead past the last token left
    return torch.minimum(drawn, vocab_size - 1 - last)
