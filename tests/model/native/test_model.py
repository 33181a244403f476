import copy
import dataclasses
import gc
import random
import re
import weakref
from collections import Counter

import pytest
import torch

from dragoman_model import checkpoint
from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import BUNDLED_MODEL, load_model
from dragoman_model.errors import CacheFullError
from dragoman_model.inference import InferenceModel
from dragoman_model.native.build import library, runnable
from dragoman_model.native.model import NativeModel, inference_model, is_exact
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import Plan, Sequence
from dragoman_model.predictions import Expansion
from dragoman_model.quantization import _FloatKernel, best_kernel

pytestmark = pytest.mark.skipif(library() is None, reason="no C compiler here")


@pytest.fixture(scope="module", params=["int8", "float32"])
def precision(request):
    return request.param


@pytest.fixture(scope="module", params=[variant.name for variant in runnable()])
def loaded(request, precision):
    """The bundled model on each of the variants that this processor can run."""
    kernels = library(request.param)
    if kernels is None:
        pytest.skip(f"the compiler does not know {request.param}")
    kernel = best_kernel()
    if kernel.levels != kernels.levels():  # what it is compared with must quantise as it does
        kernel = _FloatKernel()
        kernel.levels = kernels.levels()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "best_kernel", lambda: kernel)
        model = load_model(BUNDLED_MODEL, device="cpu", precision=precision)
    model.transformer.native_kernels = kernels
    return model


@pytest.fixture(scope="module")
def models(loaded):
    """The kernels, and PyTorch's operators on the same numbers."""
    native = inference_model(loaded.transformer)
    assert isinstance(native, NativeModel)
    return native, InferenceModel(loaded.transformer)


@pytest.fixture(scope="module")
def sources():
    rng = random.Random(0)
    return [[*(rng.randrange(4, 8000) for _ in range(length)), 2] for length in (3, 11, 30, 1, 11)]


@pytest.fixture(scope="module")
def assert_close(precision):
    # A number at the edge of two integers may be rounded either way, and what follows from it differs as int8 does.
    tolerance = {"int8": 0.02, "float32": 1e-5}[precision]

    def check(actual, expected):
        assert (actual - expected).norm() < tolerance * expected.norm()

    return check


def test_sources_are_encoded_as_the_operators_do(models, sources, assert_close):
    native, operators = (model.encode(sources) for model in models)
    assert native.lengths == operators.lengths == (4, 12, 31, 2, 12)
    assert_close(native.keys_values, operators.keys_values)


@pytest.mark.parametrize("width", [1, 4])
def test_steps_are_those_of_the_operators_and_so_is_the_cache(models, sources, width, assert_close):
    generator = torch.Generator().manual_seed(0)
    encoded = models[1].encode(sources)
    caches = [model.start(encoded, range(5), width) for model in models]
    for _ in range(19):  # past a block of columns
        token_ids = torch.randint(4, 8000, (5 * width,), generator=generator)
        native, operators = (model.step(token_ids, cache) for model, cache in zip(models, caches))
        assert_close(native, operators)
    for layer in range(2):
        keys, values = caches[0].rows.layer(layer)
        expected_keys, expected_values = caches[1].rows.layer(layer)
        assert_close(keys[..., :19], expected_keys[..., :19])
        assert_close(values[:, :19], expected_values[:, :19])


def test_a_row_gets_the_same_bits_at_any_place_of_a_batch_and_in_several_caches(models, sources):
    native = models[0]
    alone = [native.prefill([source]) for source in sources]
    long, others = native.prefill([sources[2]]), native.prefill(sources[:3])
    for place in range(21):
        native.step(torch.tensor([place + 4]), long)
    long.concatenate(native.prefill(sources))
    for place in range(18):
        token_ids = torch.tensor([100 + place, 200, 300 + place, 7, 900 + place])
        rows = native.step(torch.cat((torch.tensor([5, 6, 7, 8]), token_ids)), others, long)[4:]
        for index in range(5):
            assert native.step(token_ids[index : index + 1], alone[index])[0].equal(rows[index])


def test_what_computes_is_said(models, precision):
    native, operators = models
    assert native.kernels.startswith(f"{precision} AVX")
    assert operators.kernels == "PyTorch"


def test_the_copy_of_a_model_has_its_kernels_and_in_another_precision_the_operators(loaded):
    copied = copy.deepcopy(loaded.transformer)
    assert inference_model(copied).kernels == inference_model(loaded.transformer).kernels
    assert type(inference_model(copied.to(torch.bfloat16))) is InferenceModel


def test_nothing_is_built_for_a_shape_that_the_kernels_do_not_know(tiny_directory, monkeypatch):
    monkeypatch.setattr(checkpoint, "library", lambda: pytest.fail("built"))
    for precision in ("float32", "int8"):
        load_model(tiny_directory, device="cpu", precision=precision)
    with pytest.raises(pytest.fail.Exception, match="built"):
        load_model(BUNDLED_MODEL, device="cpu", precision="float32")


def test_a_token_outside_the_vocabulary_is_an_error(models):
    for token in (8000, -1):
        with pytest.raises(IndexError):
            models[0].encode([[5, token, 2]])


def test_padding_inside_a_source_goes_the_way_of_the_operators(models):
    native, operators = (model.encode([[5, 0, 6, 2]]) for model in models)
    assert native.padding == operators.padding == {1}
    assert native.keys_values.equal(operators.keys_values)


def test_nothing_attends_to_padding_inside_a_source(models, assert_close):
    source = [5, 6, *[0] * 60, 7, 2]
    used = models[0].prefill([[9] * 70])  # what it held must not be seen either
    used.select([])
    models[0].admit(used, models[0].encode([source]), [0])
    token_ids = torch.tensor([2])
    steps = [models[0].step(token_ids, cache) for cache in (used, models[0].prefill([source]))]
    assert steps[0].equal(steps[1])
    assert_close(steps[0], models[1].step(token_ids, models[1].prefill([source])))


def test_a_cache_that_nobody_uses_any_more_leaves_its_memory_at_once(models, sources):
    gc.disable()
    try:
        for model in models:
            cache = model.prefill(sources, width=2)
            model.step(torch.tensor([5] * 10), cache)
            cache.branch([0], [1])
            parts = [weakref.ref(cache.rows), weakref.ref(cache.sentences)]
            del cache
            assert [part() for part in parts] == [None, None]
    finally:
        gc.enable()


def test_a_source_of_more_tokens_than_positions_is_an_error(models):
    limit = models[0].config.max_source_length
    assert models[0].encode([[5] * limit]).lengths == (limit,)
    with pytest.raises(IndexError, match="positions"):
        models[0].encode([[5] * (limit + 1)])


def test_kernels_that_multiply_wrongly_are_told_and_not_used(loaded, precision, monkeypatch, caplog):
    kernels = loaded.transformer.native_kernels
    assert is_exact(kernels, int8=precision == "int8")

    class Wrong:
        levels, pack, pack_floats = kernels.levels, kernels.pack, kernels.pack_floats

        def map_rows(self, *_):
            """Leaves what memory holds, which is no product."""

    monkeypatch.setattr(loaded.transformer, "native_kernels", Wrong())
    assert type(inference_model(loaded.transformer)) is InferenceModel
    assert "wrong products" in caplog.text


def test_a_step_beyond_the_models_limit_is_refused(models, sources):
    cache = models[0].prefill(sources[:1])
    cache.max_length = 3
    for _ in range(3):
        models[0].step(torch.tensor([5]), cache)
    with pytest.raises(CacheFullError, match="3 steps"):
        models[0].step(torch.tensor([5]), cache)


def test_rows_without_a_hypothesis_are_left_out_and_the_others_get_the_same_bits(models, sources):
    native = models[0]
    full, partly = native.prefill(sources), native.prefill(sources)
    for place in range(3):
        token_ids = torch.tensor([100 + place, 200, 300 + place, 7, 900 + place])
        sums = torch.tensor([-1.5, -2.0, 0.0, -3.0, -0.5])[:, None]
        (expected,) = native.predict(token_ids, full, expansions=[Expansion(sums, 2)])
        left_out = [0, 3] if place else []
        sums[left_out] = -torch.inf
        (actual,) = native.predict(token_ids, partly, expansions=[Expansion(sums, 2)])
        kept = [row for row in range(5) if row not in left_out]
        assert actual.logits(kept).equal(expected.logits(kept))
        assert (actual.expand(())[2][left_out] == -torch.inf).all()


def run_alone(transformer, sequence, before=()):
    """Returns the hypotheses of a sentence that follows others in a batch."""
    batch = RunningBatch(transformer)
    for one in (*before, sequence):
        finished = batch.run(Plan(admit=(one,))).finished
        while batch.num_sentences:
            finished += batch.run(Plan()).finished
    return finished[0].hypotheses


def test_samples_in_the_memory_that_a_beam_search_left_are_those_of_an_empty_batch(loaded, sources):
    beams = Sequence(id=0, source_ids=tuple(sources[0]), max_length=1, options=DecodingOptions(beam_size=4))
    options = DecodingOptions(num_hypotheses=4, sampling_topk=5, seed=7)
    samples = Sequence(id=1, source_ids=tuple(sources[1]), max_length=8, options=options)
    expected = run_alone(loaded.transformer, samples)
    assert run_alone(loaded.transformer, samples, before=[beams]) == expected


def test_what_memory_held_before_is_in_no_logits(loaded, sources, monkeypatch):
    options = DecodingOptions(beam_size=4, min_length=3)
    sequence = Sequence(id=0, source_ids=tuple(sources[1]), max_length=8, options=options)
    expected = run_alone(loaded.transformer, sequence)
    empty = torch.empty

    def full_of_nan(*args, **kwargs):
        made = empty(*args, **kwargs)
        return made.fill_(torch.nan) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", full_of_nan)
    assert run_alone(loaded.transformer, sequence) == expected


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_sentence_held_to_its_numbers_and_its_free_neighbours_are_each_as_alone(loaded, sources, beam_size):
    options = DecodingOptions(beam_size=beam_size, num_hypotheses=beam_size)
    texts = [
        "The 60 men were born on July 16th, 5055, the 17 women on 5505.", "A cat.", "It is 7:45.", "He has 4044."
    ]  # fmt: skip
    encoded = [tuple(loaded.tokenizer.encode(text)) for text in texts]

    def sequence(index):
        numbers = loaded.tokenizer.numbers(encoded[index]) if index % 2 == 0 else None
        return Sequence(id=index, source_ids=encoded[index], max_length=40, options=options, numbers=numbers)

    batch = RunningBatch(loaded.transformer)
    finished = batch.run(Plan(admit=tuple(map(sequence, range(4))))).finished
    while batch.num_sentences:
        finished += batch.run(Plan()).finished
    for sentence in finished:
        assert sentence.hypotheses == run_alone(loaded.transformer, sequence(sentence.id))

    def strange(hypotheses, source):
        made = [loaded.tokenizer.decode(one.token_ids) for one in hypotheses]
        return sum(bool(runs_of_digits(text) - runs_of_digits(source)) for text in made)

    (held,) = (sentence.hypotheses for sentence in finished if sentence.id == 0)
    assert strange(held, texts[0]) == 0
    # Held to another sentence's numbers, it writes those, where the free search writes its own.
    other = "7 and 77"
    numbers = loaded.tokenizer.numbers(loaded.tokenizer.encode(other))
    foreign, free = (
        run_alone(loaded.transformer, dataclasses.replace(sequence(0), numbers=found))
        for found in (numbers, None)
    )
    assert strange(foreign, other) == 0 < strange(free, other)


def runs_of_digits(text):
    return Counter(re.findall("[0-9]+", text))
