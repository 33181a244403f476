"""Every variant of attention and positions is trained, served and shown as the default is."""

import random

import pytest
import torch
from benchmarks import textbook
from benchmarks.step_weights import decode_watched

from dragoman_model.checkpoint import load_model
from dragoman_model.native.model import is_supported
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import Sequence
from dragoman_model.selection import AttentionKind
from dragoman_model.transformer import Transformer
from tests.model.decoding import decode
from tests.model.made_up import made_up_pairs
from tests.model.training.tiny_runs import NO_AUGMENTATION, Recorder, make_trainer, never
from tests.models import VARIANTS, make_tiny_model, tiny_config

OPTIONS = [
    DecodingOptions(),
    DecodingOptions(beam_size=3, num_hypotheses=2),
    DecodingOptions(),
    DecodingOptions(sampling_topk=5, num_hypotheses=2, seed=3),
]


@pytest.fixture(scope="module", params=VARIANTS)
def directory(request, tmp_path_factory):
    return make_tiny_model(tmp_path_factory.mktemp("variants") / request.param, **VARIANTS[request.param])


@pytest.fixture(scope="module")
def model(directory):
    return load_model(directory, device="cpu")


def make_sequences(model, count=16, options=OPTIONS):
    rng = random.Random(0)
    texts = [pair.source for pair in made_up_pairs()]
    return [
        Sequence(
            id=index,
            source_ids=tuple(model.tokenizer.encode(" ".join(rng.sample(texts, rng.randint(1, 3))))),
            max_length=20,
            options=options[index % len(options)],
        )
        for index in range(count)
    ]


def test_a_sentence_gets_its_translations_whoever_joins_and_leaves_beside_it(model):
    sequences = make_sequences(model)
    alone, together = decode(model, sequences), decode(model, sequences, random.Random(1))
    assert alone.keys() == together.keys() == set(range(16))
    for index, hypotheses in alone.items():
        for one, other in zip(hypotheses, together[index], strict=True):
            assert one.token_ids == other.token_ids
            assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-4)
    assert len({hypotheses[0].token_ids for hypotheses in alone.values()}) > 8


@pytest.mark.parametrize("beam_size", [1, 3])
def test_hypotheses_are_those_of_a_search_without_a_cache(model, beam_size):
    sequences = make_sequences(model, 4, [DecodingOptions(beam_size=beam_size)])
    for index, hypotheses in decode(model, sequences, random.Random(2)).items():
        logits = textbook.uncached_logits(model.transformer, sequences[index].source_ids)
        [expected] = textbook.search(logits, model.config.eos_id, beam=beam_size, max_length=20)
        assert list(hypotheses[0].token_ids) == expected.tokens
        assert hypotheses[0].score == pytest.approx(expected.score, abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_attention_that_is_shown_is_what_the_steps_computed(model, beam_size):
    source_ids = make_sequences(model)[0].source_ids
    one = decode_watched(model.transformer, source_ids, beam_size=beam_size, max_length=20)
    torch.testing.assert_close(one.forced.cross, one.cross, rtol=0, atol=1e-5)
    assert one.forced.log_probabilities == pytest.approx(one.best.log_probabilities, abs=1e-4)
    for kind in AttentionKind:
        weights = one.forced.of(kind)
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), rtol=0, atol=1e-5)
    assert (one.forced.of(AttentionKind.DECODER_SELF).triu(1) == 0).all()


def test_int8_is_close_to_float32_and_served_by_operators_that_know_the_variant(model, directory):
    int8 = load_model(directory, device="cpu", precision="int8")
    wide = tiny_config(d_ff=32, **{**VARIANTS[directory.name], "output_bias": False})
    assert is_supported(Transformer(tiny_config(d_ff=32, output_bias=False)))
    assert not is_supported(Transformer(wide))
    [sequence] = make_sequences(model, 1)
    exact, rounded = (decode(one, [sequence])[0][0] for one in (model, int8))
    forced = Sequence(
        id=0, source_ids=sequence.source_ids, max_length=20, prefix_ids=exact.token_ids, options=OPTIONS[0]
    )
    again = decode(int8, [forced])[0][0]
    assert again.log_probabilities == pytest.approx(exact.log_probabilities, abs=0.3)
    assert again.log_probabilities != exact.log_probabilities
    assert rounded.token_ids


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_loss_falls_in_training(variant, made_up_tokenizer, tmp_path):
    config = tiny_config(d_model=32, d_ff=64, num_encoder_layers=1, tie_output=True, **VARIANTS[variant])
    trainer = make_trainer(
        tmp_path, made_up_tokenizer, config=config, train=made_up_pairs()[::11], augmentation=NO_AUGMENTATION,
        max_batch_tokens=1000, learning_rate=0.02, warmup_steps=5, max_steps=30, evaluate_every_steps=30,
    )  # fmt: skip
    recorder = Recorder()
    assert trainer.run(recorder, never)
    losses = [report.loss for report in recorder.reports]
    assert sum(losses[-5:]) / 5 < losses[0] / 1.5
