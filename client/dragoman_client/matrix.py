"""A weight matrix with its labels, so that a person can read it."""

from dataclasses import dataclass

from dragoman_client.attention import Attention, AttentionTensor


@dataclass(frozen=True)
class Matrix:
    """Weights with their labels.

    Attributes:
        source: Labels of the columns.
        target: Labels of the rows.
        weights: ``weights[target][source]``.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: list[list[float]]


def matrix_of(
    attention: Attention, tensor: AttentionTensor, *, layer: int | None = None, head: int | None = None
) -> Matrix:
    """Returns a tensor's weights of one layer and head; None takes the mean of those that were kept apart."""
    return Matrix(
        source=tuple(unit.text for unit in attention.columns(tensor.kind)),
        target=tuple(unit.text for unit in attention.rows(tensor.kind)),
        weights=tensor.mean(layer=layer, head=head),
    )
