import struct

import pytest

from dragoman import v1
from dragoman_client import Attention
from dragoman_client.attention import AttentionReader
from dragoman_client.words import piece_matrix, word_matrix

Piece = tuple[str, int, int] | str


def attention_of(
    text: str, sources: list[Piece], result: str, targets: list[Piece], weights: list[list[float]]
) -> Attention:
    """One layer, one head; a piece without a place is special."""
    header = v1.AttentionHeader(
        sentence_count=1,
        translation=v1.Translation(text=result),
        source_units=[unit(piece) for piece in sources],
        target_units=[unit(piece) for piece in targets],
    )
    header.tensors.add(
        name="cross",
        kind=v1.AttentionKind.ATTENTION_KIND_CROSS,
        type=v1.TensorType.TENSOR_TYPE_FLOAT32,
        shape=[1, 1, len(targets), len(sources)],
        axes=["layer", "head", "target", "source"],
        layers=[0],
        heads=[0],
        size_bytes=4 * len(targets) * len(sources),
    )
    flat = [weight for row in weights for weight in row]
    data = struct.pack(f"<{len(flat)}f", *flat)
    reader = AttentionReader(text)
    reader.feed(v1.DumpAttentionResponse(header=header))
    reader.feed(v1.DumpAttentionResponse(chunk=v1.TensorChunk(data=data)))
    return reader.finish()[0]


def unit(piece: Piece) -> v1.AttentionUnit:
    if isinstance(piece, str):
        return v1.AttentionUnit(text=piece, special=True)
    text, start, end = piece
    return v1.AttentionUnit(text=text, span=v1.TextSpan(start=start, end=end))


def labels_of(text: str, pieces: list[Piece]) -> tuple[str, ...]:
    attention = attention_of(text, pieces, "x", [("x", 0, 1)], [[1 / len(pieces)] * len(pieces)])
    return word_matrix(attention).source


def test_source_pieces_of_a_word_are_summed_and_target_pieces_averaged() -> None:
    attention = attention_of(
        "A garden",
        [("▁A", 0, 1), ("▁gar", 1, 5), ("den", 5, 8), "</s>"],
        "Ein Garten",
        [("▁Ein", 0, 3), ("▁Gar", 3, 7), ("ten", 7, 10), "</s>"],
        [[0.5, 0.25, 0.125, 0.125], [0.25, 0.25, 0.25, 0.25], [0, 0.5, 0.5, 0], [0, 0, 0, 1]],
    )

    matrix = word_matrix(attention)

    assert matrix.source == ("A", "garden", "</s>")
    assert matrix.target == ("Ein", "Garten", "</s>")
    assert matrix.weights == [[0.5, 0.375, 0.125], [0.125, 0.75, 0.125], [0, 0, 1]]


def test_pieces_stay_apart_when_asked_for() -> None:
    attention = attention_of(
        "ab", [("a", 0, 1), ("b", 1, 2)], "x", [("x", 0, 1), "</s>"], [[0.25, 0.75], [1, 0]]
    )

    matrix = piece_matrix(attention)

    assert (matrix.source, matrix.target) == (("a", "b"), ("x", "</s>"))
    assert matrix.weights == [[0.25, 0.75], [1, 0]]


@pytest.mark.parametrize(
    ("text", "pieces", "labels"),
    [
        ("a  b", [("▁a", 0, 1), ("▁", 1, 2), ("▁b", 2, 4), "</s>"], ("a", "b", "</s>")),
        ("a b.", [("▁a b", 0, 3), (".", 3, 4)], ("a b.",)),
        ("x 🙂!", [("▁x", 0, 1), ("▁", 1, 2), ("<0xF0>", 2, 3), ("<0x9F>", 3, 3), ("!", 3, 4)], ("x", "🙂!")),
        ("🙂 x", [("<0xF0>", 0, 1), ("<0x9F>", 1, 1), ("▁x", 1, 3)], ("🙂", "x")),
        ("a ", [("▁a", 0, 1), ("▁", 1, 2)], ("a",)),
        ("<s> a", ["<s>", ("a", 4, 5)], ("<s>", "a")),
        ("one\ttwo", [("one", 0, 3), ("\ttwo", 3, 7)], ("one", "two")),
    ],
)
def test_words_are_what_white_space_bounds(text: str, pieces: list[Piece], labels: tuple[str, ...]) -> None:
    assert labels_of(text, pieces) == labels


def test_no_weight_is_lost() -> None:
    attention = attention_of(
        "a b c", [("▁a", 0, 1), ("▁", 1, 2), ("b", 2, 3), ("▁c", 3, 5), "</s>"], "x", ["</s>"], [[0.2] * 5]
    )

    assert sum(word_matrix(attention).weights[0]) == pytest.approx(1)
