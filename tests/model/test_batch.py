import copy
import math
import random

import pytest
import torch

from dragoman_model.batch import RunningBatch, pad_ids
from dragoman_model.errors import CacheFullError
from dragoman_model.inference import InferenceModel
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import FinishReason, ForcedDecode, Plan, Sequence
from tests.model.greedy import (
    assert_same_decoding,
    collect,
    decode_uncached,
    make_short_sources,
    run_to_end,
)


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


def at_least(min_length):
    return DecodingOptions(min_length=min_length)


def test_sentences_alone_get_the_tokens_of_decoding_without_a_cache(batch, sources, outputs_alone):
    for index in range(0, 200, 10):
        sequence = Sequence(id=index, source_ids=sources[index], max_length=20)
        assert_same_decoding(run_to_end(batch, [sequence])[index], outputs_alone[index])


def test_the_sentences_end_in_both_ways_and_differ(outputs_alone):
    reasons = [reason for _, _, reason, _ in outputs_alone]
    assert reasons.count(FinishReason.EOS) > 20
    assert reasons.count(FinishReason.LENGTH) > 20
    assert len({tuple(ids) for ids, *_ in outputs_alone}) > 50


def test_every_sentence_gets_its_tokens_whoever_joins_and_leaves_beside_it(batch, sources, outputs_alone):
    rng = random.Random(1)
    waiting = list(range(200))
    rng.shuffle(waiting)
    results, running, removed = {}, set(), set()
    while waiting or running:
        admitted = [waiting.pop() for _ in range(min(rng.randint(0, 9), len(waiting)))]
        leaving = {index for index in running if rng.random() < 0.02}
        running = (running - leaving) | set(admitted)
        removed |= leaving
        out = batch.run(
            Plan(
                remove=(*leaving, 10_000),  # an id that is not there is passed over
                admit=tuple(
                    Sequence(id=index, source_ids=sources[index], max_length=20) for index in admitted
                ),
            )
        )
        if running:
            assert out.decode.rows == len(running)  # each running row writes once, no other row does
        collect(results, out)
        running -= {sentence.id for sentence in out.finished}
        assert batch.num_rows == len(running)
    assert len(removed) > 10
    assert results.keys() == set(range(200)) - removed
    for index, result in results.items():
        assert_same_decoding(result, outputs_alone[index])


def test_log_probabilities_sum_to_the_score_of_the_translation(batch, tiny_model, sources):
    transformer = tiny_model.transformer
    ids, log_probs, _ = run_to_end(batch, [Sequence(id=0, source_ids=sources[3], max_length=20)])[0]
    src_ids = torch.tensor([sources[3]])
    src_mask = transformer.source_mask(src_ids)
    start = transformer.config.decoder_start_id
    logits = transformer.decode(
        torch.tensor([[start, *ids[:-1]]]), transformer.encode(src_ids, src_mask), src_mask
    )
    score = -torch.nn.functional.cross_entropy(logits[0].double(), torch.tensor(ids), reduction="sum").item()
    assert sum(log_probs) == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize("min_length", [3, 5])
def test_no_row_ends_before_its_least_length(batch, tiny_model, sources, outputs_alone, min_length):
    short = [i for i in range(200) if len(outputs_alone[i][0]) <= min_length][:7]
    assert short
    sequences = [
        Sequence(id=index, source_ids=sources[index], max_length=20, options=at_least(min_length))
        for index in short
    ]
    free = Sequence(
        id=999, source_ids=sources[short[0]], max_length=20
    )  # beside them, without a least length
    results = run_to_end(batch, [*sequences, free])
    assert_same_decoding(results.pop(999), outputs_alone[short[0]])
    for index, result in results.items():
        assert len(result[0]) > min_length
        assert tiny_model.config.eos_id not in result[0][:min_length]
        expected = decode_uncached(tiny_model.transformer, sources[index], 20, min_length)
        assert_same_decoding(result, expected)


def test_a_row_at_its_greatest_length_says_so_and_each_has_its_own(batch, sources, outputs_alone):
    long = [i for i in range(200) if len(outputs_alone[i][0]) == 20][:3]
    limits = (1, 4, 9)
    results = run_to_end(
        batch,
        [
            Sequence(id=i, source_ids=sources[i], max_length=limit)
            for i, limit in zip(long, limits, strict=True)
        ],
    )
    for index, limit in zip(long, limits, strict=True):
        ids, _, reason = results[index]
        assert reason is FinishReason.LENGTH
        assert ids == outputs_alone[index][0][:limit]


def test_a_row_longer_than_the_model_allows_is_an_error_that_clear_recovers_from(
    batch, tiny_model, sources, outputs_alone
):
    too_long = Sequence(id=0, source_ids=sources[0], max_length=10_000, options=at_least(10_000))
    batch.run(Plan(admit=(too_long,)))
    for _ in range(tiny_model.config.max_target_length - 1):
        batch.run(Plan())
    with pytest.raises(CacheFullError):
        batch.run(Plan())
    batch.clear()
    assert batch.num_rows == 0
    result = run_to_end(batch, [Sequence(id=0, source_ids=sources[1], max_length=20)])
    assert_same_decoding(result[0], outputs_alone[1])


def test_a_cleared_batch_forgets_its_rows(batch, sources, outputs_alone):
    batch.run(Plan(admit=tuple(Sequence(id=i, source_ids=sources[i], max_length=20) for i in range(5))))
    batch.clear()
    assert batch.num_rows == 0
    assert batch.run(Plan()).finished == []
    results = run_to_end(batch, [Sequence(id=i, source_ids=sources[i], max_length=20) for i in (7, 8)])
    for index in (7, 8):
        assert_same_decoding(results[index], outputs_alone[index])


def test_a_failed_prefill_can_be_cleared(batch, tiny_model, sources, outputs_alone):
    batch.run(Plan(admit=(Sequence(id=0, source_ids=sources[0], max_length=20, options=at_least(10)),)))
    unknown_token = Sequence(id=1, source_ids=(tiny_model.config.source_vocab_size, 2), max_length=20)
    with pytest.raises(IndexError):
        batch.run(Plan(admit=(unknown_token,)))
    batch.clear()
    result = run_to_end(batch, [Sequence(id=2, source_ids=sources[2], max_length=20)])
    assert_same_decoding(result[2], outputs_alone[2])


def test_removed_rows_are_gone_at_once(batch, sources):
    sequences = tuple(
        Sequence(id=i, source_ids=sources[i], max_length=20, options=at_least(10)) for i in range(4)
    )
    batch.run(Plan(admit=sequences))
    out = batch.run(Plan(remove=(1, 2)))
    assert out.decode.rows == batch.num_rows == batch.num_sentences == 2
    out = batch.run(Plan(remove=(0, 3)))
    assert out.finished == []
    assert out.decode is None
    assert batch.num_rows == 0


def test_an_idle_batch_does_nothing(batch):
    out = batch.run(Plan())
    assert (out.finished, out.attentions, out.prefill, out.decode) == ([], [], None, None)


def test_statistics_count_rows_and_tokens(batch, sources):
    chosen = sorted(sources[:9], key=len)
    out = batch.run(
        Plan(
            admit=tuple(
                Sequence(id=i, source_ids=ids, max_length=20, options=at_least(5))
                for i, ids in enumerate(chosen)
            )
        )
    )
    assert out.prefill.rows == 9
    assert out.prefill.real_tokens == sum(map(len, chosen))
    assert out.prefill.padding_tokens == 0  # sources are packed
    assert (out.decode.rows, out.decode.real_tokens, out.decode.padding_tokens) == (9, 9, 0)
    assert out.prefill.seconds > 0
    assert out.decode.seconds > 0
    out = batch.run(Plan(remove=(0,)))
    assert out.prefill is None
    assert out.decode.rows == 8


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_runs_every_path_with_float32_results(tiny_model, sources, dtype):
    exact, half = (copy.deepcopy(tiny_model.transformer) for _ in range(2))
    half.to(dtype)
    kinds = [
        at_least(3),
        DecodingOptions(beam_size=3, num_hypotheses=2),
        DecodingOptions(sampling_topk=0, sampling_topp=0.9, num_hypotheses=2, seed=1),
    ]
    sequences = [Sequence(id=i, source_ids=sources[i], max_length=20, options=kinds[i % 3]) for i in range(7)]
    for transformer in (exact, half):
        batch = RunningBatch(transformer)
        finished = batch.run(Plan(admit=tuple(sequences[:4]))).finished
        finished += batch.run(Plan(admit=tuple(sequences[4:]))).finished
        while batch.num_rows:
            finished += batch.run(Plan()).finished
        assert sorted(sentence.id for sentence in finished) == list(range(7))
        for sentence in finished:
            assert len(sentence.hypotheses) == kinds[sentence.id % 3].num_hypotheses
            assert all(math.isfinite(p) for one in sentence.hypotheses for p in one.log_probabilities)
    forced = ForcedDecode(id=0, source_ids=sources[0], target_ids=(300, 310, 320, 2))
    expected, actual = (RunningBatch(t).run(Plan(attend=(forced,))).attentions[0] for t in (exact, half))
    torch.testing.assert_close(actual.cross, expected.cross, rtol=0, atol=0.05)
    torch.testing.assert_close(actual.cross.sum(-1), torch.ones(actual.cross.shape[:-1]), rtol=0, atol=1e-5)
    assert actual.log_probabilities == pytest.approx(expected.log_probabilities, abs=0.5)


def test_memory_of_widths_used_before_is_kept_up_to_a_limit(batch, sources, monkeypatch):
    def run(width):
        options = DecodingOptions(beam_size=width)
        run_to_end(batch, [Sequence(id=0, source_ids=sources[0], max_length=5, options=options)])

    run(1)
    batch.run(Plan())
    spare = next(iter(batch._spare_caches.values()))
    run(2)
    assert [cache.width for cache in batch._spare_caches.values()] == [1, 2]
    run(1)
    assert list(batch._spare_caches.values())[1] is spare  # used again
    monkeypatch.setattr(InferenceModel, "spare_bytes", 0)
    run(3)
    assert [cache.width for cache in batch._spare_caches.values()] == [3]


def test_ids_are_padded_at_the_end():
    assert pad_ids([[5, 6, 7], [8], []], 9).tolist() == [[5, 6, 7], [8, 9, 9], [9, 9, 9]]
