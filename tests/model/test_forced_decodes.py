"""Translations that are there, through the decoder once more for their attention, beside what runs."""

import pytest
import torch

from dragoman_model.batch import RunningBatch
from dragoman_model.plan import ForcedDecode, Plan, Sequence
from tests.model.greedy import assert_same_decoding, collect, decode_uncached, make_short_sources


@pytest.fixture
def batch(tiny_model):
    return RunningBatch(tiny_model.transformer)


@pytest.fixture(scope="module")
def sources(tiny_model):
    return make_short_sources(tiny_model)


@pytest.fixture(scope="module")
def outputs_alone(tiny_model, sources):
    """The tokens, log-probabilities and reason of each sentence, decoded alone and without a cache."""
    return [decode_uncached(tiny_model.transformer, ids, 20) for ids in sources]


def forced_decodes(outputs_alone, sources, indices):
    return tuple(
        ForcedDecode(id=index, source_ids=sources[index], target_ids=tuple(outputs_alone[index][0]))
        for index in indices
    )


def test_a_forced_decode_reproduces_the_log_probabilities_of_its_tokens(batch, sources, outputs_alone):
    indices = range(0, 200, 13)
    out = batch.run(Plan(attend=forced_decodes(outputs_alone, sources, indices)))
    assert [attention.id for attention in out.attentions] == list(indices)
    for attention in out.attentions:
        assert attention.log_probabilities == pytest.approx(outputs_alone[attention.id][1], abs=1e-4)
    assert out.finished == []
    assert batch.num_rows == 0


def test_the_attention_of_a_forced_decode_is_a_distribution_over_its_source(
    batch, tiny_model, sources, outputs_alone
):
    config = tiny_model.config
    out = batch.run(Plan(attend=forced_decodes(outputs_alone, sources, range(7))))
    for attention in out.attentions:
        num_targets, num_sources = len(outputs_alone[attention.id][0]), len(sources[attention.id])
        assert attention.cross.shape == (
            config.num_decoder_layers, config.num_heads, num_targets, num_sources,
        )  # fmt: skip
        assert attention.cross.dtype == torch.float32
        torch.testing.assert_close(
            attention.cross.sum(-1), torch.ones(attention.cross.shape[:-1]), rtol=0, atol=1e-5
        )
        assert (attention.cross >= 0).all()


def test_a_padding_token_inside_a_source_gets_no_attention_at_all(batch, tiny_model):
    source_ids = (300, 301, tiny_model.config.pad_id, 302, tiny_model.config.eos_id)
    forced = ForcedDecode(id=0, source_ids=source_ids, target_ids=(310, 320, tiny_model.config.eos_id))
    cross = batch.run(Plan(attend=(forced,))).attentions[0].cross
    assert (cross[..., 2] == 0).all()
    torch.testing.assert_close(cross.sum(-1), torch.ones(cross.shape[:-1]), rtol=0, atol=1e-5)


def test_attending_disturbs_no_running_row(batch, sources, outputs_alone):
    results = {}
    plan = Plan(admit=(Sequence(id=0, source_ids=sources[0], max_length=20),))
    while True:
        collect(results, batch.run(plan))
        if not batch.num_rows:
            break
        plan = Plan(attend=forced_decodes(outputs_alone, sources, (5,)))
    assert_same_decoding(results[0], outputs_alone[0])


def test_a_translation_of_one_token_can_be_attended(batch, tiny_model, sources):
    forced = ForcedDecode(id=4, source_ids=sources[0], target_ids=(tiny_model.config.eos_id,))
    attention = batch.run(Plan(attend=(forced,))).attentions[0]
    assert attention.cross.shape[2:] == (1, len(sources[0]))
    assert len(attention.log_probabilities) == 1
