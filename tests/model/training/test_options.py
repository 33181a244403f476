import dataclasses

import pytest

from dragoman_model.errors import RecipeError
from dragoman_model.training.options import TrainingOptions, training_options

# Field, a value that is not allowed, what the message says beside the field's name.
REFUSED = [
    ("seed", -1, "between 0"),
    ("seed", 1.5, "whole number"),
    ("max_batch_tokens", 0, "between 1"),
    ("max_batch_tokens", "3000", "whole number"),
    ("accumulation_steps", 0, "between 1"),
    ("learning_rate", 0, "between"),
    ("learning_rate", float("nan"), "between"),
    ("learning_rate", "fast", "number"),
    ("warmup_steps", -1, "between 0"),
    ("max_steps", 0, "between 1"),
    ("max_steps", True, "whole number"),
    ("weight_decay", -0.1, "between 0"),
    ("adam_betas", [0.9, 1.0], "from 0 to below 1"),
    ("adam_betas", [0.9], "two numbers"),
    ("clip_norm", -1, "between 0"),
    ("label_smoothing", 1.0, "between 0"),
    ("precision", "float16", "auto, float32 or bfloat16"),
    ("evaluate_every_steps", 0, "between 1"),
    ("log_every_steps", 0, "between 1"),
    ("save_every_seconds", -1, "between 0"),
    ("patience", -1, "between 0"),
    ("keep_checkpoints", 0, "between 1"),
]


@pytest.mark.parametrize(("field", "value", "reason"), REFUSED)
def test_a_value_that_is_not_allowed_is_refused_by_name(field, value, reason):
    with pytest.raises(RecipeError, match=field) as caught:
        training_options({field: value})
    assert reason in str(caught.value)
    assert str(caught.value).startswith("[training] ")


def test_every_option_is_checked():
    assert {field for field, *_ in REFUSED} == {field.name for field in dataclasses.fields(TrainingOptions)}


@pytest.mark.parametrize("betas", ["ab", 0.9, ["a", "b"], None])
def test_betas_that_are_no_numbers_are_refused(betas):
    with pytest.raises(RecipeError, match="adam_betas"):
        training_options({"adam_betas": betas})


def test_an_unknown_option_is_named_beside_those_there_are():
    with pytest.raises(RecipeError, match=r"learning_rates: unknown key; known are .*learning_rate,"):
        training_options({"learning_rates": 1e-3})


def test_an_empty_table_is_the_defaults_and_a_full_one_is_taken():
    assert training_options({}) == TrainingOptions()
    options = training_options({"max_steps": 7, "adam_betas": [0.8, 0.9], "learning_rate": 1})
    assert (options.max_steps, options.adam_betas, options.learning_rate) == (7, (0.8, 0.9), 1)
