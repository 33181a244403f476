"""Padding and begin-of-sentence stand in no translation, however likely the model finds them."""

import pytest
import torch
from benchmarks import textbook

from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import load_model
from dragoman_model.native.build import library
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import Sequence
from tests.model.beam_runs import (
    MAX_LENGTH,
    assert_same_hypotheses,
    decode_together,
    many_sources,
    remembered_logits,
    textbook_arguments,
)
from tests.models import make_tiny_model

UNWRITTEN = {0, 1}


@pytest.fixture(scope="module", params=["kernels", "operators"])
def padding_model(request, tmp_path_factory):
    """A model whose likeliest token is now padding, now begin-of-sentence, at nearly every step."""
    is_native = request.param == "kernels"
    if is_native and library() is None:
        pytest.skip("no C compiler here")
    directory = make_tiny_model(tmp_path_factory.mktemp("models") / "en-de", d_ff=32)
    model = load_model(directory, device="cpu", precision="float32", native=is_native)
    with torch.no_grad():
        model.transformer.output_bias[[0, 1]] = 15.0
    assert (RunningBatch(model.transformer).kernels == "PyTorch") != is_native
    return model


def sequences(model, options, prefixes=((),)):
    return [
        Sequence(
            id=index,
            source_ids=source_ids,
            max_length=MAX_LENGTH,
            options=options,
            prefix_ids=prefixes[index % len(prefixes)],
        )
        for index, source_ids in enumerate(many_sources(model)[:12])
    ]


def test_they_would_be_the_likeliest(padding_model):
    logits_of = remembered_logits(padding_model)
    for sequence in sequences(padding_model, DecodingOptions()):
        logits = logits_of(sequence.source_ids)([])
        assert logits.index(max(logits)) in UNWRITTEN


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize(
    "options",
    [{}, {"no_repeat_ngram_size": 2, "repetition_penalty": 1.5, "min_length": 5}],
    ids=["free", "constrained"],
)
def test_a_search_finds_the_best_without_them_and_scores_it_by_the_whole_softmax(
    padding_model, beam_size, options
):
    options = DecodingOptions(beam_size=beam_size, num_hypotheses=beam_size, **options)
    asked = sequences(padding_model, options, prefixes=((), (300, 301)))
    found = decode_together(padding_model.transformer, asked)
    logits_of = remembered_logits(padding_model)
    for sequence in asked:
        hypotheses = found[sequence.id]
        assert not any(UNWRITTEN & set(hypothesis.token_ids) for hypothesis in hypotheses)
        expected = textbook.search(
            logits_of(sequence.source_ids), padding_model.config.eos_id, **textbook_arguments(sequence)
        )
        assert_same_hypotheses(hypotheses, expected, options.length_penalty)


@pytest.mark.parametrize("top_k", [0, 2])
@pytest.mark.parametrize("prefix", [(), (300, 301)])
def test_they_are_never_drawn(padding_model, top_k, prefix):
    options = DecodingOptions(sampling_topk=top_k, num_hypotheses=8, seed=1, sampling_temperature=2.0)
    asked = sequences(padding_model, options, prefixes=(prefix,))
    found = decode_together(padding_model.transformer, asked)
    drawn = [hypothesis for hypotheses in found.values() for hypothesis in hypotheses]
    assert not any(UNWRITTEN & set(hypothesis.token_ids) for hypothesis in drawn)
    assert len({hypothesis.token_ids for hypothesis in drawn}) > len(found)
    logits = textbook.uncached_logits(padding_model.transformer, asked[0].source_ids)
    for hypothesis in found[0]:
        written = list(hypothesis.token_ids)
        expected = [
            textbook.log_softmax(logits(written[:length]))[token] for length, token in enumerate(written)
        ]
        assert hypothesis.log_probabilities == pytest.approx(expected, abs=1e-4)


def test_who_samples_or_not_beside_the_others_changes_nothing(padding_model):
    kinds = [
        DecodingOptions(),
        DecodingOptions(sampling_topk=0, seed=3),
        DecodingOptions(no_repeat_ngram_size=1),
        DecodingOptions(sampling_topk=5, seed=4, min_length=3),
    ]
    asked = [
        Sequence(id=4 * index + kind, source_ids=source_ids, max_length=MAX_LENGTH, options=options)
        for index, source_ids in enumerate(many_sources(padding_model)[:4])
        for kind, options in enumerate(kinds)
    ]
    together = decode_together(padding_model.transformer, asked)
    for sequence in asked:
        ((alone,),) = decode_together(padding_model.transformer, [sequence]).values()
        (beside,) = together[sequence.id]
        assert beside.token_ids == alone.token_ids
        assert beside.log_probabilities == pytest.approx(alone.log_probabilities, abs=1e-4)
