"""Steps in few recorded shapes, with a tape in the place of a GPU's graphs: `tape` holds them to the same rules."""

import logging
import random
from types import SimpleNamespace

import pytest
import torch

from dragoman_model import batch as batch_module
from dragoman_model import static_step
from dragoman_model.batch import RunningBatch
from dragoman_model.cache import DecoderCache
from dragoman_model.errors import CacheFullError
from dragoman_model.inference import InferenceModel
from dragoman_model.key_value_cache import KeyValueCache
from dragoman_model.native import model as native_model
from dragoman_model.static_step import Bucket, StaticModel, bucket_of
from tests.model.random_walks import make_sequences, make_transformer, tokens_of, translate, walk
from tests.model.tape import TapeRecorder
from tests.models import VARIANTS


@pytest.fixture
def little_room(monkeypatch):
    """Caches that grow, and so move, again and again."""
    monkeypatch.setattr(static_step, "FIRST_ROWS", 2)
    monkeypatch.setattr(static_step, "FIRST_COLUMNS", 1)


def static_batch(transformer, recorder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(batch_module, "inference_model", lambda transformer: StaticModel(transformer, recorder))
        return RunningBatch(transformer)


def assert_translates_as_before(static, model, count):
    """The batch translates so many sentences as one without recordings does."""
    sequences = make_sequences(count)
    replayed = translate(static, sequences, random.Random(4))
    expected = translate(RunningBatch(model.transformer), sequences, random.Random(4))
    assert tokens_of(replayed) == tokens_of(expected)


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("variant", ["default", *VARIANTS])
@torch.inference_mode()
def test_replayed_steps_give_the_logits_of_steps_that_are_not_recorded(variant):
    transformer = make_transformer(**VARIANTS.get(variant, {}))
    recorder = TapeRecorder()
    models = StaticModel(transformer, recorder), InferenceModel(transformer)
    shapes = set()
    for replayed, expected, caches in walk(models, random.Random(1), 50):
        torch.testing.assert_close(replayed, expected, rtol=1e-5, atol=1e-5)
        shapes |= {bucket_of(cache) for cache in caches}
    assert recorder.num_replayed > 20
    assert len(shapes) > 5


@torch.inference_mode()
def test_half_precision_is_replayed_as_it_is_computed_with_softmax_in_float32(monkeypatch):
    softmax, dtypes = torch.softmax, set()

    def watched_softmax(scores, dim):
        dtypes.add(scores.dtype)
        return softmax(scores, dim)

    monkeypatch.setattr(torch, "softmax", watched_softmax)
    transformer = make_transformer(torch.bfloat16)
    models = StaticModel(transformer, TapeRecorder()), InferenceModel(transformer)
    for replayed, expected, _ in walk(models, random.Random(1), 30):
        assert replayed.dtype is torch.bfloat16
        torch.testing.assert_close(replayed, expected, rtol=0.02, atol=0.02)
    assert dtypes == {torch.float32}


def test_a_random_walk_of_sentences_ends_in_the_same_translations(tiny_model, monkeypatch):
    recorder = TapeRecorder()
    static = static_batch(tiny_model.transformer, recorder, monkeypatch)
    sequences = make_sequences(60)
    replayed = translate(static, sequences, random.Random(4))
    expected = translate(RunningBatch(tiny_model.transformer), sequences, random.Random(4))
    assert replayed.keys() == expected.keys()
    assert len(replayed) > 40
    assert tokens_of(replayed) == tokens_of(expected)
    for index, hypotheses in expected.items():
        for one, other in zip(replayed[index], hypotheses, strict=True):
            assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-4)
    assert recorder.num_replayed > 2 * recorder.num_recorded
    assert static.kernels == "PyTorch, CUDA graphs"


def test_what_is_recorded_serves_the_sentences_that_come_later(tiny_model, monkeypatch):
    recorder = TapeRecorder()
    static = static_batch(tiny_model.transformer, recorder, monkeypatch)
    for _ in range(2):  # groups of every kind come and go
        translate(static, make_sequences(30), random.Random(4))
        num_recorded, recorder.num_recorded = recorder.num_recorded, 0
    assert num_recorded == 0


def test_rows_and_columns_are_rounded_up_as_far_as_there_is_room():
    rows, sentences = KeyValueCache(1, 2, 25), KeyValueCache(1, 2, 25)
    cache = DecoderCache(sentences, rows, 100, width=3)
    for cached, num_rows in ((rows, 30), (sentences, 10)):
        cached.reserve(num_rows, 48, 0)
    sentences.add_rows(5, 17)
    rows.add_rows(15, 1)
    assert bucket_of(cache) == Bucket(8, 32, 32)
    rows.make_room(33)
    assert bucket_of(cache) == Bucket(8, 48, 48)  # not 64, which there is no room for
    sentences.add_rows(4, 1)
    rows.add_rows(12, 1)
    assert bucket_of(cache) == Bucket(10, 48, 48)


@torch.inference_mode()
def test_few_shapes_come_up_however_rows_and_lengths_change():
    recorder = TapeRecorder()
    transformer = make_transformer()
    models = StaticModel(transformer, recorder), InferenceModel(transformer)
    shapes = set()
    for *_, (cache,) in walk(models, random.Random(5), 150, widths=[1]):
        shapes.add((cache.num_rows, cache.rows.num_columns, cache.sentences.num_columns))
    assert recorder.num_recorded < 12
    assert len(shapes) > 2 * recorder.num_recorded


def test_a_recording_too_many_starts_all_of_them_anew(tiny_model, monkeypatch):
    monkeypatch.setattr(static_step, "MAX_RECORDINGS", 3)
    held = []

    class Counted(TapeRecorder):
        def record(self, function):
            replay = super().record(function)
            held.append(self.num_held)
            return replay

    static = static_batch(tiny_model.transformer, Counted(), monkeypatch)
    assert_translates_as_before(static, tiny_model, 12)
    assert len(held) > 10
    assert max(held) == 3


@torch.inference_mode()
def test_rows_that_only_fill_up_leave_numbers_where_others_will_join():
    model = StaticModel(make_transformer(), TapeRecorder())
    cache = model.prefill([[5, 2], [7, 8, 2], [2]])
    for _ in range(2):
        model.step(torch.tensor([5, 6, 7]), cache)
    memory = cache.rows.fixed(*cache.rows.room)
    for layer in range(2):
        keys, values = memory.layer(layer)
        assert keys.isfinite().all()
        assert values.isfinite().all()
        by_row = values.view(-1, 2, *values.shape[1:])
        assert by_row[3, :, 0].any()  # the fourth row, which isn't there, wrote, too


@torch.inference_mode()
def test_rows_that_fill_up_know_nothing_of_the_longer_ones_that_were_there():
    transformer = make_transformer()
    static, plain = StaticModel(transformer, TapeRecorder()), InferenceModel(transformer)
    caches = [model.prefill([[5, 2], [7, 8, 2], [2], [9, 2]]) for model in (static, plain)]
    for _ in range(20):
        for model, cache in zip((static, plain), caches):
            model.step(torch.tensor([5, 6, 7, 8]), cache)
    for model, cache in zip((static, plain), caches):
        cache.select([])
        model.admit(cache, model.encode([[5, 2], [7, 8, 2], [6, 2]]), range(3))
    for _ in range(2):
        replayed, expected = (
            model.step(torch.tensor([5, 6, 7]), cache) for model, cache in zip((static, plain), caches)
        )
        torch.testing.assert_close(replayed, expected, rtol=1e-5, atol=1e-5)
    assert static.kernels == "PyTorch, CUDA graphs"


@pytest.mark.parametrize("fails_at", [0, 1, 9])
def test_what_cannot_be_recorded_is_computed_as_before_and_said_once(
    tiny_model, monkeypatch, caplog, fails_at
):
    recorder = TapeRecorder(fails_at)
    static = static_batch(tiny_model.transformer, recorder, monkeypatch)
    assert static.kernels == ("PyTorch" if fails_at == 0 else "PyTorch, CUDA graphs")
    assert_translates_as_before(static, tiny_model, 20)
    assert static.kernels == "PyTorch"
    assert recorder.num_recorded == fails_at
    assert recorder.num_held == 0
    [record] = [record for record in caplog.records if record.name == static_step.__name__]
    assert record.levelno == logging.WARNING
    assert "operation not permitted" in record.message


def test_a_replay_that_fails_is_computed_as_before(tiny_model, monkeypatch, caplog):
    class Unreliable(TapeRecorder):
        def record(self, function):
            replay = super().record(function)

            def replay_at_first():
                replay()
                if self.num_replayed == 20:
                    raise RuntimeError("out of memory")

            return replay_at_first

    static = static_batch(tiny_model.transformer, Unreliable(), monkeypatch)
    assert_translates_as_before(static, tiny_model, 20)
    assert static.kernels == "PyTorch"
    assert "out of memory" in caplog.text


def test_recordings_that_give_wrong_results_do_not_serve(caplog):
    class Forgetful(TapeRecorder):
        def record(self, function):
            super().record(function)
            return lambda: None

    model = StaticModel(make_transformer(), Forgetful())
    assert model.kernels == "PyTorch"
    assert "logits are off" in caplog.text


@torch.inference_mode()
def test_a_step_past_the_limit_is_refused_and_the_recordings_stay():
    model = StaticModel(make_transformer(max_target_length=3), TapeRecorder())
    cache = model.prefill([[5, 2], [7, 8, 2]])
    for _ in range(3):
        model.step(torch.tensor([5, 5]), cache)
    with pytest.raises(CacheFullError, match="3 steps"):
        model.step(torch.tensor([5, 5]), cache)
    assert cache.rows.lengths == [3, 3]
    assert model.kernels == "PyTorch, CUDA graphs"


@pytest.mark.parametrize("setting", [None, "none"])
def test_on_a_gpu_steps_are_recorded_unless_that_is_turned_off(monkeypatch, setting):
    for form in ("StaticModel", "InferenceModel"):
        monkeypatch.setattr(native_model, form, lambda *_, form=form: form)
    monkeypatch.setattr(native_model, "CudaRecorder", lambda device: device)
    if setting is not None:
        monkeypatch.setenv("DRAGOMAN_KERNELS", setting)
    transformer = SimpleNamespace(device=torch.device("cuda", 0), native_kernels=None)
    assert native_model.inference_model(transformer) == (
        "StaticModel" if setting is None else "InferenceModel"
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum().item(),
        lambda x: x[x > 0],
        lambda x: x.add_(torch.tensor([1.0, 2.0, 3.0])),
        lambda x: x.nonzero(),
    ],
    ids=["a number read", "a mask", "numbers of Python's", "a size that depends on numbers"],
)
def test_the_tape_takes_nothing_that_a_graph_would_not(function):
    x = torch.ones(3)
    with pytest.raises(AssertionError):
        TapeRecorder().record(lambda: function(x))


def test_the_tape_does_what_was_recorded_and_not_what_python_says_now():
    numbers, x, y = [2], torch.ones(3), torch.zeros(3)
    replay = TapeRecorder().record(lambda: y.copy_(x.view(3, 1)[:, 0] * numbers[0]))
    numbers[0], x[0] = 5, 7
    replay()
    assert y.tolist() == [14, 2, 2]
