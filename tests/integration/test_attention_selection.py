"""DumpAttention of the real server: what is chosen arrives, and says what it is."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from dragoman.v1 import AttentionKind, AttentionSelection, TensorType, TranslateTextRequest
from dragoman_model.checkpoint import LoadedModel, load_model
from tests.integration.dumps import Dump, dump
from tests.integration.servers import SENTENCES, RunningServer, serving
from tests.models import make_tiny_model

TEXT = "A girl is reading a book in the garden."
EVERY_KIND = ["ATTENTION_KIND_CROSS", "ATTENTION_KIND_ENCODER_SELF", "ATTENTION_KIND_DECODER_SELF"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    directory = tmp_path_factory.mktemp("models") / "en-de"
    return load_model(make_tiny_model(directory, num_encoder_layers=3, num_decoder_layers=2), device="cpu")


async def select(server: RunningServer, **selection: Any) -> Dump:
    (found,) = await dump(server, text=TEXT, selection=selection)
    return found


async def test_every_kind_comes_with_its_own_axes(server: RunningServer):
    found = await select(server, kinds=EVERY_KIND)
    header = found.header
    sources, targets = len(header.source_units), len(header.target_units)
    described = {
        info.name: (info.kind, tuple(info.axes), tuple(info.shape), tuple(info.layers), tuple(info.heads))
        for info in header.tensors
    }
    heads = (0, 1)
    assert described == {
        "cross": (
            AttentionKind.ATTENTION_KIND_CROSS, ("layer", "head", "target", "source"),
            (2, 2, targets, sources), (0, 1), heads,
        ),
        "encoder_self": (
            AttentionKind.ATTENTION_KIND_ENCODER_SELF, ("layer", "head", "query", "key"),
            (3, 2, sources, sources), (0, 1, 2), heads,
        ),
        "decoder_self": (
            AttentionKind.ATTENTION_KIND_DECODER_SELF, ("layer", "head", "target", "input"),
            (2, 2, targets, targets), (0, 1), heads,
        ),
    }  # fmt: skip
    for weights in found.tensors.values():
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
    assert (np.triu(found.tensors["decoder_self"], 1) == 0).all()


async def test_layers_and_heads_are_those_chosen_or_reduced_to_one(server: RunningServer):
    full = (await select(server)).weights
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"layers": [1], "heads": [1, 0]}, full[[1]][:, [1, 0]]),
        ({"head_reduction": "ATTENTION_REDUCTION_MEAN"}, full.mean(axis=1)),
        ({"layer_reduction": "ATTENTION_REDUCTION_MAX", "heads": [0]}, full[:, [0]].max(axis=0)),
    ]
    for selection, expected in cases:
        found = await select(server, **selection)
        np.testing.assert_allclose(found.weights, expected, atol=1e-6)


async def test_rollout_of_cross_attention_is_the_last_layer_times_that_of_the_encoder(server: RunningServer):
    every = (await select(server, kinds=EVERY_KIND)).tensors
    rolled = (await select(server, kinds=EVERY_KIND, layer_reduction="ATTENTION_REDUCTION_ROLLOUT")).tensors

    def rollout(kind: str) -> np.ndarray[Any, Any]:
        result = identity = np.eye(every[kind].shape[-1])
        for layer in every[kind].mean(axis=1):
            result = (layer + identity) / 2 @ result
        return np.asarray(result)

    np.testing.assert_allclose(rolled["encoder_self"], rollout("encoder_self"), atol=1e-6)
    np.testing.assert_allclose(rolled["decoder_self"], rollout("decoder_self"), atol=1e-6)
    cross = every["cross"][-1].mean(axis=0) @ rollout("encoder_self")
    np.testing.assert_allclose(rolled["cross"], cross, atol=1e-6)
    for weights in rolled.values():
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)


async def test_words_without_special_tokens_are_the_texts_own(server: RunningServer):
    found = await select(
        server, kinds=EVERY_KIND, level="ATTENTION_LEVEL_WORD", drop_special_tokens=True, heads=[0]
    )
    header = found.header
    assert [unit.text for unit in header.source_units] == TEXT.split()
    assert [TEXT[unit.span.start : unit.span.end] for unit in header.source_units] == TEXT.split()
    words = header.translation.text.split()
    assert [unit.text for unit in header.target_units] == words
    for name, rows, columns in (
        ("cross", header.target_units, header.source_units),
        ("encoder_self", header.source_units, header.source_units),
        ("decoder_self", header.target_units, header.input_units),
    ):
        weights = found.tensors[name]
        assert weights.shape[2:] == (len(rows), len(columns))
        sums = weights.sum(axis=-1)
        np.testing.assert_allclose(sums[sums > 0], 1, atol=1e-5)
        # The first word may have been read by nothing but begin-of-sentence.
        assert (sums[..., name == "decoder_self" :] > 0).all()


@pytest.mark.parametrize(
    ("tensor_type", "tolerance", "scale"),
    [("TENSOR_TYPE_FLOAT16", 2**-11, 1), ("TENSOR_TYPE_UINT8", 1 / 510 + 1e-6, 255)],
)
async def test_short_types_and_the_largest_weights(
    server: RunningServer, tensor_type: str, tolerance: float, scale: int
):
    full = (await select(server)).weights
    found = await select(server, tensor_type=tensor_type, top_k=3)
    indices, weights = found.tensors["cross.indices"], found.tensors["cross.weights"]
    infos = {info.name: info for info in found.header.tensors}
    assert infos["cross.indices"].type == TensorType.TENSOR_TYPE_INT32
    assert infos["cross.weights"].type == TensorType.Value(tensor_type)
    assert list(infos["cross.weights"].axes) == ["layer", "head", "target", "rank"]
    np.testing.assert_array_equal(np.take_along_axis(full, indices, -1), -np.sort(-full, -1)[..., :3])
    np.testing.assert_allclose(
        weights.astype("f8") / scale, np.take_along_axis(full, indices, -1), atol=tolerance
    )
    assert len(found.header.source_units) == full.shape[-1]


async def test_several_long_tensors_come_in_chunks(tmp_path_factory: pytest.TempPathFactory):
    path = make_tiny_model(
        tmp_path_factory.mktemp("models") / "deep", num_decoder_layers=6, d_model=32, num_heads=8
    )
    async with serving(load_model(path, device="cpu"), http="") as server:
        (found,) = await dump(
            server,
            text="Where is the red house " * 8,
            options={"min_decoding_length": 250},
            selection={"kinds": EVERY_KIND},
        )
        assert sum(info.size_bytes > 1 << 20 for info in found.header.tensors) == 2
        for weights in found.tensors.values():
            np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)


async def test_an_empty_translation_has_no_rows_once_its_end_is_dropped(server: RunningServer):
    (found,) = await dump(server, text=TEXT, translation="", selection={"drop_special_tokens": True})
    assert found.weights.shape[2] == 0
    assert list(found.header.target_units) == []


@pytest.mark.parametrize("options", [{}, {"beam_size": 4}], ids=["greedy", "beams"])
async def test_asking_for_attention_changes_no_translation(server: RunningServer, options: dict[str, Any]):
    request = TranslateTextRequest(texts=SENTENCES, options=options, output={"include_tokens": True})
    before = await server.stub.TranslateText(request)
    selection = AttentionSelection(kinds=EVERY_KIND, level="ATTENTION_LEVEL_WORD")
    translated, *dumps = await asyncio.gather(
        server.stub.TranslateText(request),
        *(dump(server, text=text, options=options, selection=selection) for text in SENTENCES),
    )
    for one, again in zip(before.translations, translated.translations, strict=True):
        assert again.text == one.text
        assert [token.piece for token in again.tokens] == [token.piece for token in one.tokens]
        assert again.score == pytest.approx(one.score, abs=1e-4)
    for (found,), one in zip(dumps, before.translations, strict=True):
        assert found.header.translation.text == one.text
        assert found.header.translation.score == pytest.approx(one.score, abs=1e-4)
