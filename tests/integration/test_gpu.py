"""Serving on a GPU: the same code, the same translations, batching there too."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest
import torch

from dragoman.v1 import DumpAttentionRequest, ListModelsRequest, TranslateTextRequest
from dragoman_model.checkpoint import load_model
from dragoman_model.translator import Translator
from tests.integration.servers import serving
from tests.models import make_tiny_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU here"),
]

TEXTS = ["A girl is reading a book in the garden.", "He sings!", "Where is the red house?", "12 trees"]


async def test_a_gpu_translates_as_the_cpu_does(tmp_path_factory: pytest.TempPathFactory):
    path = make_tiny_model(tmp_path_factory.mktemp("models") / "en-de")
    expected = [text.text for text in Translator(load_model(path, device="cpu")).translate(TEXTS)]
    async with serving(load_model(path, device="cuda", precision="float32")) as server:
        request = TranslateTextRequest(texts=TEXTS)
        responses = await asyncio.gather(*(server.stub.TranslateText(request) for _ in range(8)))
        for response in responses:
            assert [translation.text for translation in response.translations] == expected
        steps = server.value("dragoman_step_rows_count", model="en-de")
        alone = server.value("dragoman_step_rows_bucket", model="en-de", le="4.0")
        assert steps > alone  # some steps held sentences of several callers
        assert server.value("dragoman_device_memory_bytes", kind="allocated") > 0
        (model,) = (await server.stub.ListModels(ListModelsRequest())).models
        assert model.device == "cuda:0"
        assert model.kernels == "PyTorch, CUDA graphs"


@pytest.mark.parametrize(("asked", "in_force"), [("auto", "bfloat16"), ("float16", "float16")])
async def test_a_gpu_translates_and_attends_in_half_precision(
    tmp_path_factory: pytest.TempPathFactory, asked: str, in_force: str
):
    path = make_tiny_model(tmp_path_factory.mktemp("models") / "en-de")
    async with serving(load_model(path, device="cuda", precision=asked)) as server:
        response = await server.stub.TranslateText(TranslateTextRequest(texts=TEXTS))
        assert len(response.translations) == len(TEXTS)
        assert all(math.isfinite(translation.score) for translation in response.translations)
        (model,) = (await server.stub.ListModels(ListModelsRequest())).models
        assert model.precision == in_force
        parts = [part async for part in server.stub.DumpAttention(DumpAttentionRequest(text=TEXTS[0]))]
        weights = np.frombuffer(b"".join(part.chunk.data for part in parts), "<f4")
        weights = weights.reshape(parts[0].header.tensors[0].shape)
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
