import pytest
import torch

from dragoman_model.errors import CacheFullError
from dragoman_model.inference import InferenceModel
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
