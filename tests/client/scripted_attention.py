"""Attention as a scripted server dumps it: made-up weights, and what a selection makes of them in plain lists."""

import math
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dragoman import v1

DIGEST = "ab" * 32
NUM_LAYERS, NUM_HEADS = 2, 4
# What the server knows a translation of, which has fewer words.
SENTENCE = "A girl is reading a book in the garden."
GERMAN = "Ein Mädchen liest im Garten ein Buch."

Matrix = list[list[float]]

_AXES = {
    v1.AttentionKind.ATTENTION_KIND_CROSS: ("cross", "target", "source"),
    v1.AttentionKind.ATTENTION_KIND_ENCODER_SELF: ("encoder_self", "query", "key"),
    v1.AttentionKind.ATTENTION_KIND_DECODER_SELF: ("decoder_self", "target", "input"),
}


def pieces_of(text: str) -> list[tuple[str, int, int]]:
    """Cuts a text as a vocabulary would: the space goes with the word, long words into two."""
    pieces = []
    for match in re.finditer(r"\s*\S+", text):
        word, start, end = match[0], match.start(), match.end()
        cut = start + len(word) // 2 + 1 if len(word) > 6 else end
        pieces += [(text[a:b].replace(" ", "▁"), a, b) for a, b in ((start, cut), (cut, end)) if b > a]
    return pieces


@dataclass
class Units:
    """Rows or columns, and which pieces each is made of."""

    units: list[v1.AttentionUnit]
    pieces: list[list[int]]

    @classmethod
    def of(cls, text: str, offset: int, *, words: bool, first: str = "", last: str = "") -> "Units":
        """Returns the units of a text, with a special one before or behind them."""
        pieces = pieces_of(text)
        found: list[tuple[v1.AttentionUnit, list[int]]] = []
        shift = 1 if first else 0
        if words:
            for match in re.finditer(r"\S+", text):
                inside = [i for i, (_, a, b) in enumerate(pieces) if a < match.end() and b > match.start()]
                unit = _unit(match[0], offset + match.start(), offset + match.end())
                found.append((unit, [i + shift for i in inside]))
        else:
            found = [
                (_unit(piece, offset + a, offset + b), [i + shift]) for i, (piece, a, b) in enumerate(pieces)
            ]
        if first:
            found.insert(0, (v1.AttentionUnit(text=first, special=True), [0]))
        if last:
            found.append((v1.AttentionUnit(text=last, special=True), [len(pieces) + shift]))
        return cls([unit for unit, _ in found], [inside for _, inside in found])

    def without_special(self) -> "Units":
        kept = [index for index, unit in enumerate(self.units) if not unit.special]
        return Units([self.units[index] for index in kept], [self.pieces[index] for index in kept])


def attention_of(
    sentence: str,
    start: int,
    result: str,
    index: int = 0,
    count: int = 1,
    selection: v1.AttentionSelection | None = None,
) -> Iterator[v1.DumpAttentionResponse]:
    """Makes a stream whose weights lie along the diagonal and sum to 1."""
    selection = selection or v1.AttentionSelection()
    words = selection.level == v1.AttentionLevel.ATTENTION_LEVEL_WORD
    sources = Units.of(sentence, start, words=words, last="</s>")
    targets = Units.of(result, 0, words=words, last="</s>")
    inputs = Units.of(result, 0, words=words, first="<s>")
    if selection.drop_special_tokens:
        sources, targets, inputs = (units.without_special() for units in (sources, targets, inputs))
    header = v1.AttentionHeader(
        sentence_index=index,
        sentence_count=count,
        translation=v1.Translation(
            text=result, finish_reason=v1.FinishReason.FINISH_REASON_EOS, score=-2.0, sentence_count=1
        ),
        model="en-de",
        model_digest=DIGEST,
        source_units=sources.units,
        target_units=targets.units,
        input_units=inputs.units,
    )
    num_sources, num_targets = len(pieces_of(sentence)) + 1, len(pieces_of(result)) + 1
    data: list[bytes] = []
    for kind in selection.kinds or [v1.AttentionKind.ATTENTION_KIND_CROSS]:
        in_encoder = kind == v1.AttentionKind.ATTENTION_KIND_ENCODER_SELF
        over_itself = kind == v1.AttentionKind.ATTENTION_KIND_DECODER_SELF
        rows, columns = sources if in_encoder else targets, inputs if over_itself else sources
        sizes = num_sources if in_encoder else num_targets, num_targets if over_itself else num_sources
        stacks = [
            [_diagonal(*sizes, layer, head) for head in selection.heads or range(NUM_HEADS)]
            for layer in selection.layers or range(NUM_LAYERS)
        ]
        if selection.head_reduction:
            stacks = [[_reduced(stack, selection.head_reduction)] for stack in stacks]
        if selection.layer_reduction:
            stacks = [[_reduced(list(matrices), selection.layer_reduction) for matrices in zip(*stacks)]]
        matrices = [_grouped(matrix, rows, columns) for stack in stacks for matrix in stack]
        data += _add_tensors(header, kind, matrices, selection, len(columns.units))
    yield v1.DumpAttentionResponse(header=header)
    for tensor_index, content in enumerate(data):
        for offset in range(0, len(content), 1000):
            chunk = v1.TensorChunk(
                tensor_index=tensor_index, offset_bytes=offset, data=content[offset : offset + 1000]
            )
            yield v1.DumpAttentionResponse(chunk=chunk)


def _add_tensors(
    header: v1.AttentionHeader,
    kind: v1.AttentionKind,
    matrices: list[Matrix],
    selection: v1.AttentionSelection,
    num_columns: int,
) -> list[bytes]:
    """Describes a kind's tensors in the header and returns their bytes."""
    name, row_axis, column_axis = _AXES[kind]
    layers, heads = selection.layers or range(NUM_LAYERS), selection.heads or range(NUM_HEADS)
    leading = [
        (axis, len(numbers))
        for axis, numbers, reduction in (
            ("layer", layers, selection.layer_reduction),
            ("head", heads, selection.head_reduction),
        )
        if not reduction
    ]
    rows = [row for matrix in matrices for row in matrix]
    parts = [(name, selection.tensor_type or v1.TensorType.TENSOR_TYPE_FLOAT32, rows)]
    width = num_columns
    if selection.HasField("top_k"):
        width = min(selection.top_k, num_columns)
        order = [sorted(range(num_columns), key=lambda column, row=row: -row[column])[:width] for row in rows]
        largest = [[row[column] for column in columns] for row, columns in zip(rows, order)]
        parts = [
            (f"{name}.indices", v1.TensorType.TENSOR_TYPE_INT32, order),  # type: ignore[list-item]
            (f"{name}.weights", parts[0][1], largest),
        ]
        column_axis = "rank"
    contents = []
    for part, tensor_type, values in parts:
        contents.append(_written(values, tensor_type))
        header.tensors.add(
            name=part,
            kind=kind,
            type=tensor_type,
            shape=[*(size for _, size in leading), len(rows) // len(matrices), width],
            axes=[*(axis for axis, _ in leading), row_axis, column_axis],
            layers=layers,
            heads=heads,
            size_bytes=len(contents[-1]),
        )
    return contents


def _written(rows: list[list[float]], tensor_type: v1.TensorType) -> bytes:
    flat = [value for row in rows for value in row]
    if tensor_type == v1.TensorType.TENSOR_TYPE_UINT8:
        return bytes(round(value * 255) for value in flat)
    code = {v1.TensorType.TENSOR_TYPE_FLOAT16: "e", v1.TensorType.TENSOR_TYPE_INT32: "i"}.get(
        tensor_type, "f"
    )
    return struct.pack(f"<{len(flat)}{code}", *flat)


def _diagonal(num_rows: int, num_columns: int, layer: int, head: int) -> Matrix:
    matrix = []
    for row in range(num_rows):
        centre = row * (num_columns - 1) / max(num_rows - 1, 1) + 0.4 * head - 0.6
        sharpness = 0.5 + layer + head / 4
        scores = [math.exp(-sharpness * abs(column - centre)) for column in range(num_columns)]
        matrix.append([score / sum(scores) for score in scores])
    return matrix


def _reduced(matrices: list[Matrix], reduction: v1.AttentionReduction) -> Matrix:
    """Returns one of several; what this server calls a rollout is their mean."""
    is_max = reduction == v1.AttentionReduction.ATTENTION_REDUCTION_MAX
    return [
        [max(cell) if is_max else math.fsum(cell) / len(cell) for cell in zip(*rows)]
        for rows in zip(*matrices)
    ]


def _grouped(matrix: Matrix, rows: Units, columns: Units) -> Matrix:
    """Returns the rows and columns of units; those that lack special tokens sum to 1 again."""
    grouped = []
    for pieces in rows.pieces:
        mean = _mean([matrix[piece] for piece in pieces])
        sums = [math.fsum(mean[piece] for piece in group) for group in columns.pieces]
        grouped.append([value / (math.fsum(sums) or 1) for value in sums] if len(sums) < len(mean) else sums)
    return grouped


def _mean(rows: Sequence[Sequence[float]]) -> list[float]:
    return [math.fsum(column) / len(rows) for column in zip(*rows)]


def _unit(text: str, start: int, end: int) -> v1.AttentionUnit:
    return v1.AttentionUnit(text=text, span=v1.TextSpan(start=start, end=end))
