"""What is shown of attention is what translating computed: the forced pass against cached decoding, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import BUNDLED_MODEL, LoadedModel, load_model
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import AttentionOutput, ForcedDecode, Hypothesis, Plan, Sequence
from dragoman_model.selection import AttentionKind
from dragoman_model.transformer import AttentionRecord

TEXTS = (
    "A girl is reading a book in the garden.",
    "Where is the nearest train station, and how much does a ticket cost?",
    "I don't know 😀 ½",
)


@pytest.fixture(scope="module", params=["tiny", "bundled"])
def model(request, tiny_model) -> LoadedModel:
    return tiny_model if request.param == "tiny" else load_model(BUNDLED_MODEL, device="cpu")


@pytest.fixture(scope="module", params=[1, 4], ids=["greedy", "beams"])
def decoding(request, model) -> list[Decoding]:
    return [decode(model, text, beam_size=request.param) for text in TEXTS]


@dataclass
class Decoding:
    """One sentence decoded by itself with a cache.

    Attributes:
        cross: Of the best hypothesis, as each step computed it, (L, H, T, S).
    """

    source_ids: tuple[int, ...]
    best: Hypothesis
    cross: Tensor
    forced: AttentionOutput = field(init=False)


def decode(model: LoadedModel, text: str, *, beam_size: int) -> Decoding:
    source_ids = tuple(model.tokenizer.encode(text))
    batch = RunningBatch(model.transformer)
    options = DecodingOptions(beam_size=beam_size)
    plan = Plan(admit=(Sequence(id=0, source_ids=source_ids, max_length=30, options=options),))
    written: list[list[tuple[int, ...]]] = [[()]]
    steps: list[list[Tensor]] = []
    finished: list[Any] = []
    while not finished:
        with recorded(model, beam_size) as weights:
            finished = batch.run(plan).finished
        plan = Plan()
        # Of each layer two: over what was written, then over the source.
        steps.append(weights[1::2])
        if not finished:
            [group] = batch._groups.values()
            written.append([tuple(row) for row in group.searches[0].written()])
    best = finished[0].best
    shape = model.config.num_heads, -1, steps[0][0].size(-1)
    cross = [
        torch.stack([layer.reshape(shape)[:, rows.index(best.token_ids[:step])] for layer in layers])
        for step, (layers, rows) in enumerate(zip(steps, written))
        if step < len(best.token_ids)
    ]
    decoding = Decoding(source_ids, best, torch.stack(cross, dim=2)[..., : len(source_ids)])
    forced = ForcedDecode(
        id=0, source_ids=source_ids, target_ids=best.token_ids, kinds=frozenset(AttentionKind)
    )
    [decoding.forced] = batch.run(Plan(attend=(forced,))).attentions
    return decoding


@contextmanager
def recorded(model: LoadedModel, width: int) -> Iterator[list[Tensor]]:
    """Collects the weights of every attention that a step computes, whichever way it does so."""
    found: list[Tensor] = []
    fused, softmax = F.scaled_dot_product_attention, torch.softmax

    def keep(weights: Tensor) -> None:
        if weights.size(-2) <= width:  # the encoder has as many queries as the source has tokens
            found.append(weights)

    def watched_fused(queries: Tensor, keys: Tensor, values: Tensor, **options: Any) -> Tensor:
        scale = options.get("scale") or queries.size(-1) ** -0.5
        scores = queries @ keys.transpose(-2, -1) * scale
        mask = options.get("attn_mask")
        keep(softmax(scores if mask is None else scores.masked_fill(~mask, -torch.inf), -1))
        return fused(queries, keys, values, **options)

    def watched_softmax(scores: Tensor, *arguments: Any, **options: Any) -> Tensor:
        weights = softmax(scores, *arguments, **options)
        keep(weights)
        return weights

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(F, "scaled_dot_product_attention", watched_fused)
        patch.setattr(torch, "softmax", watched_softmax)
        yield found
    assert len(found) == 2 * model.config.num_decoder_layers


def test_cross_attention_is_what_cached_decoding_computed_step_by_step(decoding):
    for one in decoding:
        assert one.forced.cross.shape == one.cross.shape
        torch.testing.assert_close(one.forced.cross, one.cross, rtol=0, atol=1e-5)


def test_the_forced_pass_has_the_log_probabilities_that_decoding_had(decoding):
    for one in decoding:
        assert one.forced.log_probabilities == pytest.approx(one.best.log_probabilities, abs=1e-4)


@pytest.mark.parametrize("decoding", [1], indirect=True, ids=["greedy"])
def test_the_forced_pass_predicts_the_tokens_that_greedy_decoding_made(model, decoding):
    for one in decoding:
        src_ids = torch.tensor([one.source_ids])
        read_ids = torch.tensor([[model.config.decoder_start_id, *one.best.token_ids[:-1]]])
        src_mask = model.transformer.source_mask(src_ids)
        with torch.inference_mode():
            memory = model.transformer.encode(src_ids, src_mask)
            logits = model.transformer.decode(read_ids, memory, src_mask, AttentionRecord())
        assert logits[0].argmax(-1).tolist() == list(one.best.token_ids)


def test_rows_sum_to_one_and_what_is_masked_is_zero_exactly(decoding):
    for one in decoding:
        for kind in AttentionKind:
            weights = one.forced.of(kind)
            assert weights.dtype == torch.float32
            assert (weights >= 0).all()
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), rtol=0, atol=1e-5)
        assert (one.forced.of(AttentionKind.DECODER_SELF).triu(1) == 0).all()


def test_kinds_that_were_not_asked_for_are_not_returned(tiny_model):
    forced = ForcedDecode(id=0, source_ids=(300, 301, 2), target_ids=(310, 2))
    [output] = RunningBatch(tiny_model.transformer).run(Plan(attend=(forced,))).attentions
    assert output.encoder_self is None
    assert output.decoder_self is None


def test_asking_for_attention_between_steps_changes_no_translation(model):
    sequences = tuple(
        Sequence(
            id=index,
            source_ids=tuple(model.tokenizer.encode(text)),
            max_length=30,
            options=DecodingOptions(beam_size=beam_size),
        )
        for index, (text, beam_size) in enumerate(zip(TEXTS, (1, 4, 1)))
    )
    forced = ForcedDecode(
        id=9, source_ids=sequences[0].source_ids, target_ids=(310, 2), kinds=frozenset(AttentionKind)
    )
    results = []
    for attend in ((), (forced,)):
        batch = RunningBatch(model.transformer)
        finished = {}
        plan = Plan(admit=sequences, attend=attend)
        while True:
            finished.update({one.id: one.hypotheses for one in batch.run(plan).finished})
            if not batch.num_sentences:
                break
            plan = Plan(attend=attend)
        results.append(finished)
    assert results[0] == results[1]
    assert set(results[0]) == {0, 1, 2}
