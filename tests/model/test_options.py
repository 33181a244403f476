import pytest

from dragoman_model.options import DecodingOptions


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"beam_size": 0}, "beam_size is 0; it must be 1 or more"),
        ({"num_hypotheses": 0, "beam_size": 2}, "num_hypotheses is 0"),
        ({"num_hypotheses": 3, "beam_size": 2}, "num_hypotheses is 3; it must be at most beam_size, 2"),
        ({"length_penalty": float("nan")}, "length_penalty is nan"),
        ({"length_penalty": -51}, "length_penalty is -51; it must be from -50 to 50"),
        ({"repetition_penalty": 0.5}, "repetition_penalty is 0.5; it must be 1 or more"),
        ({"repetition_penalty": float("inf")}, "repetition_penalty is inf"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size is -1"),
        ({"min_length": -1}, "min_length is -1"),
        ({"max_length": 0}, "max_length is 0; it must be 1 or more"),
        ({"min_length": 5, "max_length": 4}, "max_length is 4; it must be 5 or more"),
        ({"sampling_topk": -1}, "sampling_topk is -1"),
        ({"sampling_topp": 0.0}, "sampling_topp is 0.0; it must be above 0"),
        ({"sampling_topp": 1.1}, "sampling_topp is 1.1"),
        ({"sampling_temperature": 0.0}, "sampling_temperature is 0.0"),
        ({"sampling_topk": 0, "beam_size": 2}, "beam_size is 2; it must be 1 when sampling"),
        ({"seed": 2**63}, "seed is"),
    ],
)
def test_a_senseless_value_says_what_is_allowed(values, message):
    with pytest.raises(ValueError, match=message):
        DecodingOptions(**values)


@pytest.mark.parametrize(
    ("values", "rows"),
    [
        ({}, 1),
        ({"beam_size": 4}, 4),
        ({"beam_size": 4, "num_hypotheses": 2}, 4),
        ({"sampling_topk": 0, "num_hypotheses": 3}, 3),
    ],
)
def test_a_sentence_takes_a_row_for_each_beam_or_sample(values, rows):
    assert DecodingOptions(**values).num_rows == rows


def test_a_seed_is_drawn_only_where_one_counts_and_none_is_given():
    assert DecodingOptions().with_seed().seed is None
    assert DecodingOptions(sampling_topk=0, seed=7).with_seed().seed == 7
    drawn = {DecodingOptions(sampling_topk=0).with_seed().seed for _ in range(5)}
    assert len(drawn) == 5
    assert all(0 <= seed < 2**63 for seed in drawn)
