import dataclasses
import struct
from collections.abc import Callable, Iterator

import pytest

from dragoman import v1
from dragoman_client import (
    Attention,
    AttentionKind,
    AttentionLevel,
    AttentionReduction,
    AttentionSelection,
    ServerError,
    TextSpan,
    Translator,
    WeightType,
)
from dragoman_client.attention_reader import AttentionReader
from tests.client.scripted_attention import NUM_HEADS, NUM_LAYERS, attention_of
from tests.client.scripted_server import ScriptedServer

TEXT = "A girl reads."


def read(stream: Iterator[v1.DumpAttentionResponse], text: str = TEXT) -> list[Attention]:
    reader = AttentionReader(text)
    for response in stream:
        reader.feed(response)
    return reader.finish()


def sent_floats(text: str) -> list[float]:
    data = b"".join(response.chunk.data for response in attention_of(text, 0, f"<{text}>"))
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def test_sentence_comes_with_its_units_and_every_weight(server: ScriptedServer) -> None:
    with Translator(server.address) as translator:
        [attention] = translator.attention(TEXT)

    assert attention.text == TEXT
    assert attention.translation.text == f"<{TEXT}>"
    assert [unit.text for unit in attention.source_units] == ["A", "▁girl", "▁rea", "ds.", "</s>"]
    assert attention.source_units[1].span == TextSpan(1, 6)
    assert (attention.source_units[-1].span, attention.source_units[-1].special) == (None, True)
    assert attention.weights.axes == ("layer", "head", "target", "source")
    assert attention.weights.shape == (NUM_LAYERS, NUM_HEADS, len(attention.target_units), 5)
    assert attention.weights.values.tolist() == sent_floats(TEXT)


def test_row_and_mean_and_lists_agree_with_the_flat_values() -> None:
    [attention] = read(attention_of(TEXT, 0, "x y z"))
    weights = attention.weights
    _, heads, targets, sources = weights.shape
    flat = weights.values.tolist()

    def at(layer: int, head: int, target: int, source: int) -> float:
        return flat[((layer * heads + head) * targets + target) * sources + source]

    assert weights.row(1, 2, 3).tolist() == [at(1, 2, 3, s) for s in range(sources)]
    assert weights.tolist()[1][2][3] == weights.row(1, 2, 3).tolist()
    everywhere = [at(layer, head, 2, 4) for layer in range(2) for head in range(4)]
    assert weights.mean()[2][4] == pytest.approx(sum(everywhere) / 8)
    assert weights.mean(layer=1)[2][4] == pytest.approx(sum(everywhere[4:]) / 4)
    assert weights.mean(head=3)[2][4] == pytest.approx((everywhere[3] + everywhere[7]) / 2)
    assert weights.mean(layer=0, head=1)[2][4] == pytest.approx(everywhere[1])


def test_numpy_array_is_the_same_numbers() -> None:
    np = pytest.importorskip("numpy")
    [attention] = read(attention_of(TEXT, 0, "x y z"))

    array = attention.weights.numpy()

    assert array.dtype == np.float32
    assert array.shape == attention.weights.shape
    assert array[1, 2, 3].tolist() == attention.weights.row(1, 2, 3).tolist()


@pytest.mark.parametrize("place", [(2, 0, 0), (0, 4, 0), (0, 0, 99), (-1, 0, 0), (0, 0, -1)])
def test_row_that_is_not_there_is_an_index_error(place: tuple[int, int, int]) -> None:
    [attention] = read(attention_of(TEXT, 0, "x"))

    with pytest.raises(IndexError):
        attention.weights.row(*place)


def test_every_kind_asked_for_comes_with_its_rows_and_columns(server: ScriptedServer) -> None:
    kinds = tuple(AttentionKind)
    with Translator(server.address) as translator:
        [attention] = translator.attention(TEXT, selection=AttentionSelection(kinds=kinds))

    assert [tensor.kind for tensor in attention.tensors] == list(kinds)
    assert attention.weights is attention.tensors[0]
    assert [tensor.axes[2:] for tensor in attention.tensors] == [
        ("target", "source"), ("query", "key"), ("target", "input"),
    ]  # fmt: skip
    for tensor in attention.tensors:
        rows, columns = attention.rows(tensor.kind), attention.columns(tensor.kind)
        assert tensor.shape == (NUM_LAYERS, NUM_HEADS, len(rows), len(columns))
        assert sum(tensor.row(1, 3, len(rows) - 1)) == pytest.approx(1)
    assert attention.columns(AttentionKind.DECODER_SELF)[0].text == "<s>"


def test_reduced_axis_is_left_out_where_a_row_is_named(server: ScriptedServer) -> None:
    with Translator(server.address) as translator:
        [full] = translator.attention(TEXT)
        [heads] = translator.attention(TEXT, selection=AttentionSelection(head_reduction="mean"))
        [one] = translator.attention(
            TEXT,
            selection=AttentionSelection(
                layers=(1,), layer_reduction=AttentionReduction.MAX, head_reduction=AttentionReduction.MAX
            ),
        )

    assert heads.weights.axes == ("layer", "target", "source")
    assert heads.weights.row(1, None, 2).tolist() == pytest.approx(full.weights.mean(layer=1)[2])
    assert heads.weights.mean()[2] == pytest.approx(full.weights.mean()[2])
    assert (one.weights.axes, one.weights.layers) == (("target", "source"), (1,))
    largest = [max(column) for column in zip(*(full.weights.row(1, head, 0) for head in range(NUM_HEADS)))]
    assert one.weights.row(None, None, 0).tolist() == pytest.approx(largest)
    with pytest.raises(IndexError, match="layer None"):
        heads.weights.row(None, None, 0)


def test_words_come_without_special_tokens_when_asked_for(server: ScriptedServer) -> None:
    text = "reading a garden"
    selection = AttentionSelection(level=AttentionLevel.WORD, drop_special_tokens=True)
    with Translator(server.address) as translator:
        [attention] = translator.attention(text, selection=selection)

    assert [unit.text for unit in attention.source_units] == text.split()
    assert attention.weights.shape[-1] == 3
    assert sum(attention.weights.mean()[0]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("weight_type", "tolerance"), [(WeightType.FLOAT16, 5e-4), ("uint8", 1 / 510 + 1e-6), (None, 0)]
)
def test_weights_are_float32_whatever_they_travelled_as(
    server: ScriptedServer, weight_type: WeightType | str | None, tolerance: float
) -> None:
    with Translator(server.address) as translator:
        [full] = translator.attention(TEXT)
        [short] = translator.attention(TEXT, selection=AttentionSelection(weight_type=weight_type))

    assert short.weights.values.format == "f"
    assert short.weights.values.tolist() == pytest.approx(full.weights.values.tolist(), abs=tolerance)


def test_largest_weights_know_their_columns(server: ScriptedServer) -> None:
    with Translator(server.address) as translator:
        [full] = translator.attention(TEXT)
        [attention] = translator.attention(TEXT, selection=AttentionSelection(top_k=2))

    tensor = attention.weights
    assert (tensor.axes[-1], tensor.shape[-1], tensor.num_columns) == ("rank", 2, 5)
    assert tensor.indices is not None
    row = full.weights.row(0, 1, 2).tolist()
    best = sorted(range(5), key=lambda column: -row[column])[:2]
    start = (1 * tensor.shape[2] + 2) * 2  # head 1, row 2
    assert tensor.indices[start : start + 2].tolist() == best
    assert tensor.row(0, 1, 2).tolist() == [row[column] for column in best]
    assert tensor.mean(layer=0, head=1)[2] == [
        weight if column in best else 0 for column, weight in enumerate(row)
    ]


def test_translation_without_rows_is_empty_lists() -> None:
    selection = v1.AttentionSelection(drop_special_tokens=True)
    [attention] = read(attention_of(TEXT, 0, "", selection=selection))

    assert attention.target_units == ()
    assert attention.weights.mean() == []
    assert attention.weights.tolist() == [[[] for _ in range(NUM_HEADS)] for _ in range(NUM_LAYERS)]


def test_index_beyond_the_columns_is_the_servers_fault() -> None:
    stream = list(attention_of(TEXT, 0, "x", selection=v1.AttentionSelection(top_k=1)))
    stream[1].chunk.data = b"\x09\0\0\0" + stream[1].chunk.data[4:]

    with pytest.raises(ServerError, match="an index beyond 5 columns"):
        read(iter(stream))


def test_several_sentences_come_in_order_with_spans_into_the_whole_text(server: ScriptedServer) -> None:
    text = "One two. Three!"

    with Translator(server.address) as translator:
        first, second = translator.attention(text)

    assert (first.sentence_index, second.sentence_index, second.sentence_count) == (0, 1, 2)
    span = second.source_units[0].span
    assert span is not None
    assert text[span.start : span.end] == "Three!"


def test_given_translation_travels(server: ScriptedServer) -> None:
    with Translator(server.address) as translator:
        [attention] = translator.attention(TEXT, translation="Ein Mädchen liest.")

    assert server.script.attention_requests[0].translation == "Ein Mädchen liest."
    assert attention.translation.text == "Ein Mädchen liest."


def test_blank_text_has_no_attention(server: ScriptedServer) -> None:
    with Translator(server.address) as translator:
        assert translator.attention("  ") == []


def test_result_cannot_be_changed() -> None:
    [attention] = read(attention_of(TEXT, 0, "x"))

    with pytest.raises(dataclasses.FrozenInstanceError):
        attention.text = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        attention.weights.values[0] = 1.0


Stream = list[v1.DumpAttentionResponse]


def _lose_header(stream: Stream) -> Stream:
    return stream[1:]


def _lose_chunk(stream: Stream) -> Stream:
    return stream[:-1]


def _swap_chunks(stream: Stream) -> Stream:
    return [stream[0], stream[2], stream[1], *stream[3:]]


def _misnumber(stream: Stream) -> Stream:
    stream[0].header.sentence_index = 1
    return stream


def _promise_more(stream: Stream) -> Stream:
    stream[0].header.sentence_count = 2
    return stream


def _reshape(stream: Stream) -> Stream:
    stream[0].header.tensors[0].shape[3] += 1
    return stream


def _halve(stream: Stream) -> Stream:
    stream[0].header.tensors[0].type = v1.TensorType.TENSOR_TYPE_FLOAT16
    return stream


def _swap_axes(stream: Stream) -> Stream:
    stream[0].header.tensors[0].axes[:2] = ["head", "layer"]
    return stream


def _name_unknown_kind(stream: Stream) -> Stream:
    stream[0].header.tensors[0].kind = 99
    return stream


def _name_unknown_type(stream: Stream) -> Stream:
    stream[0].header.tensors[0].type = 99
    return stream


def _send_indices_alone(stream: Stream) -> Stream:
    stream[0].header.tensors[0].type = v1.TensorType.TENSOR_TYPE_INT32
    return stream


def _name_unknown_tensor(stream: Stream) -> Stream:
    stream[1].chunk.tensor_index = 1
    return stream


def _send_no_tensor(stream: Stream) -> Stream:
    del stream[0].header.tensors[:]
    return stream[:1]


@pytest.mark.parametrize(
    "spoil",
    [
        _lose_header,
        _lose_chunk,
        _swap_chunks,
        _misnumber,
        _promise_more,
        _reshape,
        _halve,
        _swap_axes,
        _name_unknown_kind,
        _name_unknown_type,
        _send_indices_alone,
        _name_unknown_tensor,
        _send_no_tensor,
    ],
)
def test_broken_stream_is_the_servers_fault(spoil: Callable[[Stream], Stream]) -> None:
    stream = list(attention_of("A girl is reading a book in the garden.", 0, "a b c d e f g h i j"))
    assert len(stream) > 3

    with pytest.raises(ServerError, match="broken attention stream"):
        read(iter(spoil(stream)))
