import math

import pytest
import torch

from dragoman_model.checkpoint import named_weights
from dragoman_model.errors import CacheFullError
from dragoman_model.inference import InferenceModel
from dragoman_model.transformer import AttentionRecord, Transformer
from tests.models import VARIANTS, tiny_config

LENGTHS = (7, 3, 5)  # of the sources: B = 3, S = 7
T = 6

KINDS = {
    "pre": {},
    "post": {"norm": "post", "activation": "gelu", "sinusoid_layout": "concatenated"},
    "tied": {"tie_output": True, "output_bias": False, "num_decoder_layers": 2},
    "separate": {"shared_vocabulary": False, "source_vocab_size": 41, "target_vocab_size": 53},
    "separate tied": {
        "shared_vocabulary": False,
        "tie_output": True,
        "source_vocab_size": 53,
        "target_vocab_size": 41,
        "activation": "swish",
        "scale_embeddings": False,
    },
    "tall": {"num_encoder_layers": 1, "num_decoder_layers": 3, "num_heads": 4, "layer_norm_eps": 1e-3},
    **VARIANTS,
}
PRECISIONS = {torch.float32: 1e-5, torch.float64: 1e-10}  # largest difference, relative to max |logit|


def make_transformer(dtype=torch.float64, seed=0, **changes):
    torch.manual_seed(seed)
    transformer = Transformer(tiny_config(**changes))
    with torch.no_grad():
        for name, parameter in transformer.named_parameters():
            if "norm" in name or "bias" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return transformer.to(dtype).eval()


def make_sources(transformer, lengths=LENGTHS, seed=1):
    """Returns source ids, padded, and their mask."""
    generator = torch.Generator().manual_seed(seed)
    config = transformer.config
    src_ids = torch.randint(4, config.source_vocab_size, (len(lengths), max(lengths)), generator=generator)
    for row, length in enumerate(lengths):
        src_ids[row, length - 1] = config.eos_id
        src_ids[row, length:] = config.pad_id
    return src_ids, transformer.source_mask(src_ids)


def make_targets(transformer, num_rows=3, length=T, seed=2):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, transformer.config.target_vocab_size, (num_rows, length), generator=generator)
    ids[:, 0] = transformer.config.decoder_start_id
    return ids


def assert_logits_close(actual, expected):
    tolerance = PRECISIONS[expected.dtype] * expected.abs().max().item()
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


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


# Cached decoding


def prefill(model, src_ids, src_mask):
    return model.prefill([ids[mask].tolist() for ids, mask in zip(src_ids, src_mask)])


def decode_with_cache(model, cache, tgt_ids):
    return torch.stack([model.step(tgt_ids[:, t], cache) for t in range(tgt_ids.size(1))], dim=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_cached_decoding_gives_the_logits_of_uncached(kind, dtype):
    transformer = make_transformer(dtype, **KINDS[kind])
    model = InferenceModel(transformer)
    src_ids, src_mask = make_sources(transformer)
    tgt_ids = make_targets(transformer, length=19)  # the cache grows on the way
    with torch.no_grad():
        expected = transformer.decode(tgt_ids, transformer.encode(src_ids, src_mask), src_mask)
        actual = decode_with_cache(model, prefill(model, src_ids, src_mask), tgt_ids)
    assert_logits_close(actual, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_cached_decoding_chooses_the_tokens_of_uncached(kind):
    transformer = make_transformer(**KINDS[kind])
    model = InferenceModel(transformer)
    src_ids, src_mask = make_sources(transformer)
    with torch.no_grad():
        memory, cache = transformer.encode(src_ids, src_mask), prefill(model, src_ids, src_mask)
        cached = uncached = make_targets(transformer, length=1)
        for _ in range(15):
            uncached = torch.cat(
                (uncached, transformer.decode(uncached, memory, src_mask)[:, -1:].argmax(-1)), dim=1
            )
            cached = torch.cat((cached, model.step(cached[:, -1], cache).argmax(-1)[:, None]), dim=1)
    assert cached.equal(uncached)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_rows_that_join_and_leave_between_steps_keep_their_logits(kind, dtype):
    transformer = make_transformer(dtype, **KINDS[kind])
    model = InferenceModel(transformer)
    first_ids, first_mask = make_sources(transformer)
    late_ids, late_mask = make_sources(transformer, lengths=(9, 2), seed=3)
    first_targets = make_targets(transformer)
    late_targets = make_targets(transformer, num_rows=2, seed=4)
    with torch.no_grad():
        first = transformer.decode(first_targets, transformer.encode(first_ids, first_mask), first_mask)
        late = transformer.decode(late_targets, transformer.encode(late_ids, late_mask), late_mask)
        cache = prefill(model, first_ids, first_mask)
        for t in range(2):
            assert_logits_close(model.step(first_targets[:, t], cache), first[:, t])
        cache.concatenate(prefill(model, late_ids, late_mask))  # rows 3 and 4, at step 0 beside step 2
        for t in range(2):
            step_ids = torch.cat((first_targets[:, t + 2], late_targets[:, t]))
            assert_logits_close(model.step(step_ids, cache), torch.cat((first[:, t + 2], late[:, t])))
        cache.select([4, 1])  # in another order; the longest source leaves
        step_ids = torch.stack((late_targets[1, 2], first_targets[1, 4]))
        expected = torch.stack((late[1, 2], first[1, 4]))
        assert_logits_close(model.step(step_ids, cache), expected)
        cache.select([0])  # the row with the most steps leaves
        assert_logits_close(model.step(late_targets[1:, 3], cache), late[1:, 3])


def test_a_source_is_projected_once_however_many_rows_and_steps_read_it():
    transformer = make_transformer(num_decoder_layers=3)
    model = InferenceModel(transformer)
    src_ids, src_mask = make_sources(transformer)
    with torch.no_grad():
        encoded = model.encode([ids[mask].tolist() for ids, mask in zip(src_ids, src_mask)])
        assert encoded.keys_values.shape == (sum(LENGTHS), 3, 2, 2, 8)  # (P, L, 2, H, K), nothing padded
        cache = model.start(encoded, range(3), width=4)
        before = [part.clone() for part in cache.sentences.layer(2)]
        decode_with_cache(model, cache, make_targets(transformer, num_rows=12))
    assert all(part.equal(held) for part, held in zip(cache.sentences.layer(2), before))
    assert cache.sentences.num_rows == 3
    assert cache.rows.lengths == [T] * 12


def test_a_step_beyond_the_models_limit_is_refused():
    transformer = make_transformer(max_target_length=4, max_source_length=9)
    model = InferenceModel(transformer)
    src_ids, src_mask = make_sources(transformer)
    with torch.no_grad():
        cache = prefill(model, src_ids, src_mask)
        decode_with_cache(model, cache, make_targets(transformer, length=4))
        with pytest.raises(CacheFullError, match="4 steps"):
            model.step(torch.tensor([5, 5, 5]), cache)


@pytest.mark.parametrize(("window", "columns"), [(3, 16), (16, 16), (17, 32)])
def test_a_window_keeps_serving_in_the_same_memory_however_long_it_writes(window, columns):
    # Heads 32 wide, whose columns come in the smallest blocks.
    transformer = make_transformer(d_model=64, decoder_attention="window", attention_window=window)
    model = InferenceModel(transformer)
    src_ids, src_mask = make_sources(transformer)
    tgt_ids = make_targets(transformer, length=100)
    with torch.no_grad():
        expected = transformer.decode(tgt_ids, transformer.encode(src_ids, src_mask), src_mask)
        cache = prefill(model, src_ids, src_mask)
        actual, sizes = [], []
        for t in range(100):
            actual.append(model.step(tgt_ids[:, t], cache))
            sizes.append(cache.rows.size_bytes)
    assert_logits_close(torch.stack(actual, dim=1), expected)
    assert len(set(sizes[window:])) == 1
    assert cache.rows.num_columns == columns


def test_the_longest_source_and_target_have_positions():
    transformer = make_transformer(max_target_length=11, max_source_length=7)
    model = InferenceModel(transformer)
    src_ids, src_mask = make_sources(transformer)
    tgt_ids = make_targets(transformer, length=11)
    with torch.no_grad():
        expected = transformer.decode(tgt_ids, transformer.encode(src_ids, src_mask), src_mask)
        actual = decode_with_cache(model, prefill(model, src_ids, src_mask), tgt_ids)
    assert_logits_close(actual, expected)


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
