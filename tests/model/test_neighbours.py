"""Where sums run in one order whatever stands beside a row, a sentence's numbers are the same to the last bit."""

import random

import pytest

from dragoman_model.checkpoint import BUNDLED_MODEL, load_model
from dragoman_model.native.build import library
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import Sequence
from tests.model.decoding import decode, make_sources


@pytest.fixture(scope="module", params=["int8 kernels", "float32 kernels", "int8 operators"])
def bundled_model(request):
    precision, what = request.param.split()
    if what == "kernels" and library() is None:
        pytest.skip("no C compiler here")
    return load_model(BUNDLED_MODEL, device="cpu", precision=precision, native=what == "kernels")


def test_a_translation_does_not_depend_on_its_neighbours_to_the_last_bit(bundled_model):
    sources = make_sources(bundled_model, 40)
    kinds = [
        DecodingOptions(),
        DecodingOptions(beam_size=3, num_hypotheses=2),
        DecodingOptions(),
        DecodingOptions(sampling_topk=5, num_hypotheses=2, seed=3),
    ]
    sequences = [
        Sequence(id=index, source_ids=source, max_length=30, options=kinds[index % 4])
        for index, source in enumerate(sources)
    ]
    alone = {}
    for sequence in sequences:
        alone.update(decode(bundled_model, [sequence]))
    together = decode(bundled_model, sequences, rng=random.Random(1))
    assert together == alone  # tokens and log-probabilities
    assert len({hypotheses[0].token_ids for hypotheses in alone.values()}) > 20


def test_scores_are_those_of_the_translation_to_the_last_bit(bundled_model):
    sources = make_sources(bundled_model, 9)
    sequences = [Sequence(id=i, source_ids=source, max_length=20) for i, source in enumerate(sources)]
    written = decode(bundled_model, sequences, rng=random.Random(2))
    forced = [
        Sequence(id=i, source_ids=source, max_length=20, prefix_ids=written[i][0].token_ids)
        for i, source in enumerate(sources)
    ]
    assert decode(bundled_model, forced, rng=random.Random(3)) == written
