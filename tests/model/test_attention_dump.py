"""What is returned of a sentence's attention, against plain loops over all of it."""

import array
import itertools
import struct

import pytest
import torch

from dragoman_model.attention_dump import Units, select_attention
from dragoman_model.plan import AttentionOutput
from dragoman_model.selection import AttentionKind, AttentionSelection, ElementType, Reduction
from dragoman_model.tokenizer import Piece

CROSS, ENCODER, DECODER = AttentionKind.CROSS, AttentionKind.ENCODER_SELF, AttentionKind.DECODER_SELF
NUM_LAYERS, H = {CROSS: 2, ENCODER: 3, DECODER: 2}, 4

SOURCE_TEXT, TARGET_TEXT = "A red garden", "Ein Garten"
END = Piece(2, "</s>", None, special=True)
START = Piece(1, "<s>", None, special=True)
SOURCE = [
    Piece(9, "<capitals>", None, special=True),
    Piece(5, "▁A", (0, 1)),
    Piece(6, "▁red", (2, 5)),
    Piece(7, "▁gar", (6, 9)),
    Piece(8, "den", (9, 12)),
    END,
]
TARGET = [Piece(5, "▁Ein", (0, 3)), Piece(6, "▁Gar", (4, 7)), Piece(7, "ten", (7, 10)), END]
S, T = len(SOURCE), len(TARGET)


def softmax_rows(*shape, seed, causal=False):
    scores = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    if causal:
        scores = scores.masked_fill(torch.ones(shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1)


OUTPUT = AttentionOutput(
    0,
    softmax_rows(NUM_LAYERS[CROSS], H, T, S, seed=1),
    (-0.5,) * T,
    softmax_rows(T, S, seed=5),
    encoder_self=softmax_rows(NUM_LAYERS[ENCODER], H, S, S, seed=2),
    decoder_self=softmax_rows(NUM_LAYERS[DECODER], H, T, T, seed=3, causal=True),
)


def units(words=False):
    return Units.of(SOURCE, SOURCE_TEXT, TARGET, TARGET_TEXT, START, words=words)


def select(**wanted):
    selection = AttentionSelection(**wanted)
    return select_attention(OUTPUT, selection, units(selection.words))


def values_of(found):
    """Returns an array's numbers as a tensor, weights as they were before they were written as uint8."""
    code, scale = {
        ElementType.FLOAT32: ("f", 1),
        ElementType.FLOAT16: ("e", 1),
        ElementType.UINT8: ("B", 255),
        ElementType.INT32: ("i", 1),
    }[found.element_type]
    count = len(found.data) // struct.calcsize(f"<{code}")
    numbers = struct.unpack(f"<{count}{code}", found.data)
    return torch.tensor(numbers, dtype=torch.float64).div(scale).view(found.shape)


def only(**wanted):
    [found] = select(**wanted)
    return found


def combine(matrices, how):
    cells = [list(zip(*rows)) for rows in zip(*matrices)]
    return [[sum(cell) / len(cell) if how is Reduction.MEAN else max(cell) for cell in row] for row in cells]


def product(a, b):
    return [[sum(a[i][k] * b[k][j] for k in range(len(b))) for j in range(len(b[0]))] for i in range(len(a))]


def rolled(matrices):
    size = len(matrices[0])
    result = [[float(i == j) for j in range(size)] for i in range(size)]
    for matrix in matrices:
        half = [[(matrix[i][j] + (i == j)) / 2 for j in range(size)] for i in range(size)]
        result = product(half, result)
    return result


def in_words(matrix, rows, columns):
    matrix = [[sum(row[piece] for piece in unit.pieces) for unit in columns] for row in matrix]
    return [
        [sum(matrix[piece][c] for piece in unit.pieces) / len(unit.pieces) for c in range(len(columns))]
        for unit in rows
    ]


def by_hand(kind, selection):
    """Returns the matrices wanted, first layer's first, in plain loops and lists."""
    every = OUTPUT.of(kind).tolist()
    layers = selection.layers or range(len(every))
    heads = selection.heads or range(H)
    rows, columns = units(selection.words).along(kind)
    if selection.is_rollout:
        means = [combine([every[layer][head] for head in heads], Reduction.MEAN) for layer in sorted(layers)]
        if kind is CROSS:
            encoder = OUTPUT.of(ENCODER).tolist()
            means_below = [combine([layer[head] for head in heads], Reduction.MEAN) for layer in encoder]
            stacks = [[product(means[-1], rolled(means_below))]]
        else:
            stacks = [[rolled(means)]]
    else:
        stacks = [[every[layer][head] for head in heads] for layer in layers]
    if selection.words:
        stacks = [[in_words(matrix, rows, columns) for matrix in stack] for stack in stacks]
    if not selection.is_rollout:
        if selection.head_reduction:
            stacks = [[combine(stack, selection.head_reduction)] for stack in stacks]
        if selection.layer_reduction:
            stacks = [[combine(matrices, selection.layer_reduction) for matrices in zip(*stacks)]]
    matrices = []
    for matrix in itertools.chain(*stacks):
        if selection.drop_special_tokens:
            kept = [index for index, unit in enumerate(columns) if not unit.special]
            matrix = [
                [row[c] / (sum(row[k] for k in kept) or 1) for c in kept]
                for row, unit in zip(matrix, rows)
                if not unit.special
            ]
        matrices.append(matrix)
    return matrices


SELECTIONS = [
    {},
    {"layers": (1,)},
    {"heads": (3, 0)},
    {"layers": (1, 0), "heads": (2,), "words": True},
    {"head_reduction": Reduction.MEAN},
    {"layer_reduction": Reduction.MAX},
    {"layer_reduction": Reduction.MEAN, "head_reduction": Reduction.MAX},
    {"layer_reduction": Reduction.MAX, "head_reduction": Reduction.MAX, "drop_special_tokens": True},
    {"words": True},
    {"words": True, "layer_reduction": Reduction.MAX, "head_reduction": Reduction.MAX},
    {"drop_special_tokens": True},
    {"words": True, "drop_special_tokens": True, "head_reduction": Reduction.MEAN},
    {"layer_reduction": Reduction.ROLLOUT},
    {"layer_reduction": Reduction.ROLLOUT, "heads": (1, 2), "layers": (0,), "words": True},
    {"layer_reduction": Reduction.ROLLOUT, "head_reduction": Reduction.MEAN, "drop_special_tokens": True},
]


@pytest.mark.parametrize("kind", AttentionKind)
@pytest.mark.parametrize("wanted", SELECTIONS, ids=str)
def test_every_selection_is_what_plain_loops_make_of_all_weights(kind, wanted):
    selection = AttentionSelection(kinds=(kind,), **wanted)
    found = only(kinds=(kind,), **wanted)
    expected = torch.tensor(by_hand(kind, selection), dtype=torch.float64)
    torch.testing.assert_close(values_of(found).flatten(0, -3) if found.axes[:-2] else values_of(found)[None],
                               expected, rtol=0, atol=1e-6)  # fmt: skip
    if Reduction.MAX not in (selection.layer_reduction, selection.head_reduction):
        sums = values_of(found).sum(-1)
        is_empty = (
            sums == 0
        )  # after special tokens: the first row of DECODER_SELF saw nothing but begin-of-sentence
        assert is_empty.any() == (kind is DECODER and selection.drop_special_tokens)
        torch.testing.assert_close(sums[~is_empty], torch.ones_like(sums[~is_empty]), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "axes", "shape"),
    [
        (CROSS, ("layer", "head", "target", "source"), (2, H, T, S)),
        (ENCODER, ("layer", "head", "query", "key"), (3, H, S, S)),
        (DECODER, ("layer", "head", "target", "input"), (2, H, T, T)),
    ],
)
def test_axes_layers_and_heads_are_named(kind, axes, shape):
    found = only(kinds=(kind,))
    assert (found.name, found.kind, found.element_type) == (kind.value, kind, ElementType.FLOAT32)
    assert (found.axes, found.shape) == (axes, shape)
    assert (found.layers, found.heads) == (tuple(range(shape[0])), tuple(range(H)))


@pytest.mark.parametrize(
    ("wanted", "axes", "layers", "heads"),
    [
        ({"layers": (1, 0), "heads": (3,)}, ("layer", "head"), (1, 0), (3,)),
        ({"layers": (1,), "head_reduction": Reduction.MAX}, ("layer",), (1,), (0, 1, 2, 3)),
        ({"layer_reduction": Reduction.MEAN, "heads": (2,)}, ("head",), (0, 1), (2,)),
        ({"layer_reduction": Reduction.ROLLOUT}, (), (1,), (0, 1, 2, 3)),
    ],
)
def test_a_reduced_axis_is_gone_and_what_went_into_it_is_named(wanted, axes, layers, heads):
    found = only(**wanted)
    assert found.axes == (*axes, "target", "source")
    assert (found.layers, found.heads) == (layers, heads)
    assert len(found.shape) == len(found.axes)


def test_a_rollout_of_self_attention_names_all_its_layers_from_below():
    found = only(kinds=(ENCODER,), layers=(2, 0), layer_reduction=Reduction.ROLLOUT)
    assert (found.axes, found.layers) == (("query", "key"), (0, 2))


def test_the_largest_attention_to_a_word_is_at_most_one():
    for kind in AttentionKind:
        found = only(kinds=(kind,), words=True, layer_reduction=Reduction.MAX, head_reduction=Reduction.MAX)
        assert values_of(found).max() <= 1


def test_masked_places_are_zero_exactly_in_every_form():
    for wanted in ({}, {"layer_reduction": Reduction.ROLLOUT}, {"head_reduction": Reduction.MAX}):
        assert (values_of(only(kinds=(DECODER,), **wanted)).triu(1) == 0).all()


def test_kinds_come_in_the_order_asked_for():
    found = select(kinds=(DECODER, CROSS), top_k=1)
    assert [one.name for one in found] == [
        "decoder_self.indices", "decoder_self.weights", "cross.indices", "cross.weights",
    ]  # fmt: skip


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("top_k", [2, 99])
def test_the_largest_weights_stand_where_their_indices_say(words, top_k):
    full = values_of(only(words=words, drop_special_tokens=True))
    indices, weights = select(words=words, drop_special_tokens=True, top_k=top_k)
    assert indices.axes == weights.axes == ("layer", "head", "target", "rank")
    assert indices.element_type is ElementType.INT32
    assert indices.shape == weights.shape == (*full.shape[:-1], min(top_k, full.size(-1)))
    kept, places = values_of(weights), values_of(indices).long()
    assert torch.equal(full.gather(-1, places), kept)
    assert torch.equal(kept, full.sort(-1, descending=True).values[..., :top_k])


@pytest.mark.parametrize(
    ("element_type", "tolerance"), [(ElementType.FLOAT16, 2**-11), (ElementType.UINT8, 1 / 510 + 1e-7)]
)
@pytest.mark.parametrize("top_k", [None, 3])
def test_short_types_are_as_near_as_they_can_be(element_type, tolerance, top_k):
    exact, short = (select(element_type=one, top_k=top_k)[-1] for one in (ElementType.FLOAT32, element_type))
    assert short.element_type is element_type
    assert len(short.data) < len(exact.data)
    torch.testing.assert_close(values_of(short), values_of(exact), rtol=0, atol=tolerance)


def test_units_are_rows_and_columns():
    pieces, words = units(), units(words=True)
    assert [unit.text for unit in pieces.input] == ["<s>", "▁Ein", "▁Gar", "ten"]
    assert [unit.text for unit in words.source] == ["<capitals>", "A", "red", "garden", "</s>"]
    assert [unit.text for unit in words.target] == ["Ein", "Garten", "</s>"]
    assert [unit.text for unit in words.input] == ["<s>", "Ein", "Garten"]
    plain = words.without_special()
    assert [unit.text for unit in plain.source] == ["A", "red", "garden"]
    assert [unit.text for unit in plain.target] == [unit.text for unit in plain.input] == ["Ein", "Garten"]


def test_a_translation_without_text_has_no_rows_once_special_tokens_are_left_out():
    output = AttentionOutput(0, softmax_rows(2, H, 1, S, seed=4), (-0.5,), softmax_rows(1, S, seed=5))
    empty = Units.of(SOURCE, SOURCE_TEXT, [END], "", START, words=True)
    [found] = select_attention(output, AttentionSelection(words=True, drop_special_tokens=True), empty)
    assert (found.shape, found.data) == ((2, H, 0, 3), b"")


@pytest.mark.parametrize(
    "wrong",
    [
        {"kinds": ()},
        {"kinds": (CROSS, CROSS)},
        {"layers": (-1,)},
        {"heads": (1, 1)},
        {"head_reduction": Reduction.ROLLOUT},
        {"layer_reduction": Reduction.ROLLOUT, "head_reduction": Reduction.MAX},
        {"element_type": ElementType.INT32},
        {"top_k": 0},
    ],
)
def test_a_selection_that_means_nothing_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(reversed(wrong)))):
        AttentionSelection(**wrong)


def test_bytes_are_float32_in_the_order_of_the_axes():
    assert array.array("f", only().data).tolist() == OUTPUT.cross.flatten().tolist()
