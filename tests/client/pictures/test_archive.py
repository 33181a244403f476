import io
from typing import Any

import numpy as np

from dragoman_client.attention import Attention
from dragoman_client.pictures.archive import pack_archive
from tests.client.made_up_attention import ALL_KINDS, make_attention

PAIRS = [("Tom likes tea.", "Tom mag Tee."), ("Ünlü 🙂 reading?", "Berühmt 🙂 lesen?")]


def load(attentions: list[Attention]) -> dict[str, Any]:
    with np.load(io.BytesIO(pack_archive(attentions)), allow_pickle=False) as archive:
        return dict(archive)


def test_numpy_reads_every_weight_of_every_sentence() -> None:
    attentions = make_attention(*PAIRS)
    arrays = load(attentions)

    for attention in attentions:
        for tensor in attention.tensors:
            name = f"{attention.sentence_index}/{tensor.kind.value.replace('-', '_')}"
            assert arrays[name].dtype == np.float32
            assert np.array_equal(arrays[name], tensor.numpy())
            assert arrays[f"{name}.layers"].tolist() == list(tensor.layers)
            assert arrays[f"{name}.heads"].tolist() == list(tensor.heads)


def test_units_and_their_spans_are_there() -> None:
    arrays = load(make_attention(*PAIRS))

    assert arrays["1/source_units"].tolist() == ["Ünlü", "🙂", "reading?", "</s>"]
    assert arrays["1/input_units"].tolist() == ["<s>", "Berühmt", "🙂", "lesen?"]
    text = str(arrays["1/text"])
    assert [text[a:b] for a, b in arrays["1/source_spans"][:-1]] == ["Ünlü", "🙂", "reading?"]
    assert arrays["1/source_spans"][-1].tolist() == [-1, -1]
    assert (str(arrays["0/translation"]), str(arrays["0/model"])) == ("Tom mag Tee.", "en-de")


def test_the_largest_weights_come_with_their_columns() -> None:
    [attention] = make_attention(PAIRS[0], kinds=ALL_KINDS[:1], top_k=2)
    arrays = load([attention])

    assert arrays["0/cross"].shape == arrays["0/cross.indices"].shape == attention.weights.shape
    assert arrays["0/cross.indices"].dtype == np.int32
    assert arrays["0/cross.indices"][1, 3, 0].tolist() == list(attention.weights.indices or ())[-8:][:2]


def test_nothing_left_is_an_empty_array() -> None:
    arrays = load(make_attention(("Tom.", " "), kinds=ALL_KINDS[:1], drop_special_tokens=True))

    assert arrays["0/cross"].shape == (2, 4, 0, 1)
    assert arrays["0/target_units"].shape == (0,)


def test_equal_attention_makes_equal_files() -> None:
    assert pack_archive(make_attention(*PAIRS)) == pack_archive(make_attention(*PAIRS))
