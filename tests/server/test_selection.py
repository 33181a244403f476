"""What an attention selection's fields mean together, and against a model."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.v1 import AttentionSelection as SelectionMessage
from dragoman_model.selection import AttentionKind, AttentionSelection, Reduction
from dragoman_server.errors import InvalidArgumentError
from dragoman_server.findings import Findings
from dragoman_server.selection import check_layers_and_heads, check_selection
from tests.models import tiny_config

CROSS, ENCODER, DECODER = AttentionKind.CROSS, AttentionKind.ENCODER_SELF, AttentionKind.DECODER_SELF


def check(**fields: Any) -> tuple[AttentionSelection, dict[str, str]]:
    findings = Findings()
    selection = check_selection(SelectionMessage(**fields), findings)
    return selection, {violation.field: violation.description for violation in findings.invalid}


def test_a_rollout_averages_heads_whether_that_is_said_or_not():
    for fields in ({}, {"head_reduction": "ATTENTION_REDUCTION_MEAN"}):
        selection, violations = check(layer_reduction="ATTENTION_REDUCTION_ROLLOUT", **fields)
        assert selection.layer_reduction is Reduction.ROLLOUT
        assert not violations


def test_a_rollout_over_the_largest_heads_is_refused():
    _, violations = check(
        layer_reduction="ATTENTION_REDUCTION_ROLLOUT", head_reduction="ATTENTION_REDUCTION_MAX"
    )
    assert violations == {"selection.head_reduction": "a rollout averages heads; leave it unset"}


def test_every_field_at_fault_is_named_with_what_is_allowed():
    _, violations = check(kinds=[0, 9], layers=[-1], heads=[2, 2], level=9, tensor_type=4, top_k=-3)
    assert list(violations) == [
        "selection.kinds[0]", "selection.kinds[1]", "selection.layers", "selection.heads", "selection.level",
        "selection.tensor_type", "selection.top_k",
    ]  # fmt: skip
    assert violations["selection.tensor_type"] == (
        "TENSOR_TYPE_INT32 is none of TENSOR_TYPE_FLOAT32, TENSOR_TYPE_FLOAT16, TENSOR_TYPE_UINT8"
    )


@pytest.mark.parametrize(
    ("kinds", "layers", "description"),
    [
        ((CROSS,), (0, 1), "1 given; the decoder has layers 0 to 0"),
        ((DECODER,), (7,), "7 given; the decoder has layers 0 to 0"),
        ((ENCODER,), (1, 2), "2 given; the encoder has layers 0 to 1"),
        ((ENCODER, CROSS), (1,), "1 given; the decoder has layers 0 to 0"),
    ],
)
def test_a_layer_that_one_of_the_kinds_has_not_is_refused(
    kinds: tuple[AttentionKind, ...], layers: tuple[int, ...], description: str
):
    selection = AttentionSelection(kinds=kinds, layers=layers)
    with pytest.raises(InvalidArgumentError) as caught:
        check_layers_and_heads(selection, tiny_config(num_encoder_layers=2, num_decoder_layers=1))
    [violation] = caught.value.violations
    assert (violation.field, violation.description) == ("selection.layers", description)


def test_a_head_that_is_not_there_is_refused_and_every_other_taken():
    config = tiny_config(num_heads=2, num_encoder_layers=2, num_decoder_layers=1)
    check_layers_and_heads(AttentionSelection(kinds=(ENCODER,), layers=(1, 0), heads=(1, 0)), config)
    with pytest.raises(InvalidArgumentError, match=r"selection\.heads: 2 given; each layer has heads 0 to 1"):
        check_layers_and_heads(AttentionSelection(heads=(0, 2)), config)


def test_rollout_of_cross_attention_needs_the_encoder():
    plain, rolled = (AttentionSelection(layer_reduction=one) for one in (None, Reduction.ROLLOUT))
    assert plain.needed_kinds == {CROSS}
    assert rolled.needed_kinds == {CROSS, ENCODER}
