import math

import pytest
import torch

from dragoman_model.checkpoint import named_weights
from dragoman_model.transformer import AttentionRecord, Transformer
from tests.model.small_transformers import (
    KINDS,
    LENGTHS,
    PRECISIONS,
    T,
    assert_logits_close,
    make_sources,
    make_targets,
    make_transformer,
)
from tests.models import VARIANTS, tiny_config

# Masks


@pytest.mark.parametrize("kind", ["pre", "post", *VARIANTS])
@pytest.mark.parametrize("grad", [True, False])
def test_a_future_target_token_changes_no_earlier_output_bit(kind, grad):
    transformer = make_transformer(torch.float32, **{**KINDS[kind], "num_decoder_layers": 2})
    src_ids, src_mask = make_sources(transformer)
    tgt_ids = make_targets(transformer)
    with torch.set_grad_enabled(grad):
        memory = transformer.encode(src_ids, src_mask)
        before = transformer.decode(tgt_ids, memory, src_mask)
        for position in range(1, T):
            changed = tgt_ids.clone()
            changed[:, position] = (changed[:, position] + 7) % 300 + 4
            after = transformer.decode(changed, memory, src_mask)
            assert after[:, :position].equal(before[:, :position])
            assert (after[:, position] != before[:, position]).any(dim=-1).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_a_padded_batch_gives_the_outputs_of_the_single_sentences(kind, dtype):
    transformer = make_transformer(dtype, **KINDS[kind])
    src_ids, src_mask = make_sources(transformer)
    tgt_ids = make_targets(transformer)
    with torch.no_grad():
        memory = transformer.encode(src_ids, src_mask)
        logits = transformer.decode(tgt_ids, memory, src_mask)
        for row, length in enumerate(LENGTHS):
            ids = src_ids[row : row + 1, :length]
            real = torch.ones_like(ids, dtype=torch.bool)
            alone = transformer.encode(ids, real)
            assert_logits_close(memory[row : row + 1, :length], alone)
            assert_logits_close(
                logits[row : row + 1], transformer.decode(tgt_ids[row : row + 1], alone, real)
            )


@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_in_padding_has_no_influence(kind):
    transformer = make_transformer(torch.float32, **KINDS[kind])
    src_ids, src_mask = make_sources(transformer)
    tgt_ids = make_targets(transformer)
    with torch.no_grad():
        before = transformer.decode(tgt_ids, transformer.encode(src_ids, src_mask), src_mask)
        src_ids[~src_mask] = 9
        after = transformer.decode(tgt_ids, transformer.encode(src_ids, src_mask), src_mask)
    assert after.equal(before)


def test_padding_is_what_holds_the_padding_id():
    transformer = make_transformer(pad_id=3, unk_id=0)
    assert transformer.source_mask(torch.tensor([[5, 0, 3]])).tolist() == [[True, True, False]]


# Recorded attention


@pytest.mark.parametrize("kind", ["pre", "post", *(kind for kind in VARIANTS if "window" not in kind)])
def test_recorded_attention_is_a_distribution_over_what_may_be_attended_to(kind):
    transformer = make_transformer(**{**KINDS[kind], "num_decoder_layers": 3})
    src_ids, src_mask = make_sources(transformer)
    tgt_ids = make_targets(transformer)
    record = AttentionRecord()
    with torch.no_grad():
        memory = transformer.encode(src_ids, src_mask, record)
        logits = transformer.decode(tgt_ids, memory, src_mask, record)
        fused = transformer.decode(tgt_ids, transformer.encode(src_ids, src_mask), src_mask)
    assert_logits_close(logits, fused)
    assert [w.shape for w in record.encoder_self] == [(3, 2, 7, 7)] * 2
    assert [w.shape for w in record.decoder_self] == [(3, 2, T, T)] * 3
    assert [w.shape for w in record.cross] == [(3, 2, T, 7)] * 3
    for weights in (*record.encoder_self, *record.decoder_self, *record.cross):
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    for weights in (*record.encoder_self, *record.cross):
        for row, length in enumerate(LENGTHS):
            assert (weights[row, ..., length:] == 0).all()
            assert (weights[row, ..., :length] > 0).all()
    for weights in record.decoder_self:
        assert (weights.triu(1) == 0).all()
    assert not record.cross[0].equal(record.cross[1])


# Parameters


def test_a_shared_and_tied_embedding_is_one_parameter():
    transformer = make_transformer(tie_output=True)
    assert transformer.source_embedding is transformer.target_embedding
    assert transformer.output_weight is transformer.target_embedding.weight
    sizes = [tuple(weight.shape) for weight in named_weights(transformer).values()]
    assert sizes.count((384, 16)) == 1


def test_separate_vocabularies_and_an_output_of_its_own_are_three():
    transformer = make_transformer(**KINDS["separate"])
    sizes = [tuple(weight.shape) for weight in named_weights(transformer).values()]
    assert sizes.count((41, 16)) == 1
    assert sizes.count((53, 16)) == 2
    src_ids, src_mask = make_sources(transformer)
    logits = transformer.decode(make_targets(transformer), transformer.encode(src_ids, src_mask), src_mask)
    assert logits.shape == (3, T, 53)


def test_the_output_bias_is_added_to_the_logits():
    transformer = make_transformer()
    states = torch.randn(2, 16).double()
    torch.testing.assert_close(
        transformer.project(states), states @ transformer.output_weight.T + transformer.output_bias
    )
    assert make_transformer(output_bias=False).output_bias is None


def test_embeddings_are_scaled_by_the_root_of_the_width_or_not_at_all():
    for scale, factor in ((True, 4.0), (False, 1.0)):
        transformer = make_transformer(scale_embeddings=scale, norm="pre", num_encoder_layers=1)
        captured = []
        transformer.encoder[0].register_forward_pre_hook(
            lambda module, inputs, c=captured: c.append(inputs[0])
        )
        src_ids, src_mask = make_sources(transformer)
        transformer.encode(src_ids, src_mask)
        embedded = captured[0] - transformer.positions[:7]
        torch.testing.assert_close(embedded, transformer.source_embedding.weight[src_ids] * factor)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_new_model_predicts_about_evenly(norm, tied):
    torch.manual_seed(0)
    vocab_size = 1000
    transformer = Transformer(
        tiny_config(
            d_model=64, d_ff=128, num_heads=4, num_encoder_layers=4, num_decoder_layers=2, norm=norm,
            tie_output=tied, source_vocab_size=vocab_size, target_vocab_size=vocab_size,
        )
    ).eval()  # fmt: skip
    src_ids, src_mask = make_sources(transformer, lengths=(11, 8, 5))
    tgt_ids = make_targets(transformer, length=9)
    with torch.no_grad():
        memory = transformer.encode(src_ids, src_mask)
        logits = transformer.decode(tgt_ids, memory, src_mask)
    assert 0.5 < memory.std() < 2
    assert logits.std() < 1.5
    labels = make_targets(transformer, length=9, seed=9)[:, 1:]
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels.flatten()).item()
    assert loss == pytest.approx(math.log(vocab_size), abs=1.0)


def test_training_drops_units_and_evaluation_is_deterministic():
    transformer = make_transformer(dropout=0.3)
    src_ids, src_mask = make_sources(transformer)
    with torch.no_grad():
        assert transformer.encode(src_ids, src_mask).equal(transformer.encode(src_ids, src_mask))
        transformer.train()
        assert not transformer.encode(src_ids, src_mask).equal(transformer.encode(src_ids, src_mask))


@pytest.mark.parametrize("kind", ["post", *VARIANTS])
def test_gradients_reach_every_parameter_and_equal_those_of_float64(kind):
    gradients = {}
    for dtype in (torch.float32, torch.float64):
        transformer = make_transformer(dtype, **{**KINDS[kind], "num_decoder_layers": 2})
        src_ids, src_mask = make_sources(transformer)
        logits = transformer.decode(
            make_targets(transformer), transformer.encode(src_ids, src_mask), src_mask
        )
        logits.log_softmax(-1)[..., 5].sum().backward()
        gradients[dtype] = {name: p.grad.double() for name, p in transformer.named_parameters()}
    for name, exact in gradients[torch.float64].items():
        turns = "rotary" in kind and "self_attention" in name
        adds = kind == "additive" and "cross_attention" in name
        estimates = "favor" in kind and name.startswith("encoder")
        # Elsewhere the bias moves all scores of a query alike, and the softmax does not notice.
        if "k_proj.bias" in name and not (turns or adds or estimates):
            assert exact.abs().max() < 1e-10
            continue
        assert exact.abs().max() > 0, name
        tolerance = 1e-4 * exact.abs().max().item()
        torch.testing.assert_close(gradients[torch.float32][name], exact, rtol=0, atol=tolerance)
