"""What ours is compared with: CTranslate2 int8 behind the same contract, with the usual dynamic batching of requests.

    python benchmarks/baseline.py --listen 127.0.0.1:50051

A batch is gathered for 5 ms or up to 32 sentences, translated whole, and answered whole; what comes meanwhile waits for the
next. Texts are cut and tokenised as in our server, on the same event loop. It serves greedy `TranslateText` and `ListModels`,
and refuses the rest.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import ctranslate2
import grpc
from engine_adapters import longest_target
from peers import read_weights, write_ctranslate2

from dragoman.v1 import (
    ListModelsResponse,
    TranslateTextResponse,
    TranslationServiceServicer,
    add_TranslationServiceServicer_to_server,
)
from dragoman_model.checkpoint import BUNDLED_MODEL, LoadedModel, load_model
from dragoman_model.config import ModelConfig
from dragoman_model.errors import SentenceTooLongError
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import FinishReason, Hypothesis
from dragoman_model.translation import assemble, prepare
from dragoman_server import event_loop
from dragoman_server.messages import model_message, translation_message

_WINDOW_SECONDS = 0.005
_MAX_BATCH_SIZE = 32
_MAX_QUEUE_SIZE = 1024  # as many as our server lets wait

SourceIds = tuple[int, ...]


@dataclass(frozen=True)
class Waiting:
    """The sentences of one request, and who waits for them."""

    sources: Sequence[SourceIds]
    answer: asyncio.Future[list[Hypothesis]]
    arrived: float = field(default_factory=time.monotonic)


class Batcher:
    """Gathers requests and translates them together, one batch at a time.

    Args:
        translate: From sentences to translations; runs in a thread.
        window: Seconds that a request waits for others.
        max_batch_size: Sentences at which it waits no longer.
    """

    def __init__(
        self, translate: Any, *, window: float = _WINDOW_SECONDS, max_batch_size: int = _MAX_BATCH_SIZE
    ) -> None:
        self._translate = translate
        self._window = window
        self._max_batch_size = max_batch_size
        self._queue: asyncio.Queue[Waiting] = asyncio.Queue(_MAX_QUEUE_SIZE)
        self._thread = ThreadPoolExecutor(1)

    async def submit(self, sources: Sequence[SourceIds]) -> list[Hypothesis]:
        """Returns the translations of one request's sentences.

        Raises:
            asyncio.QueueFull: Too many requests wait.
        """
        waiting = Waiting(sources, asyncio.get_running_loop().create_future())
        self._queue.put_nowait(waiting)
        return await waiting.answer

    async def run(self) -> None:
        """Translates until cancelled."""
        while True:
            batch = [waiting for waiting in await self._gather() if not waiting.answer.done()]
            sources = [source for waiting in batch for source in waiting.sources]
            if not sources:
                continue
            found = await asyncio.get_running_loop().run_in_executor(self._thread, self._translate, sources)
            position = 0
            for waiting in batch:
                end = position + len(waiting.sources)
                if not waiting.answer.done():
                    waiting.answer.set_result(found[position:end])
                position = end

    async def _gather(self) -> list[Waiting]:
        batch = [await self._queue.get()]
        closes = batch[0].arrived + self._window
        while sum(len(waiting.sources) for waiting in batch) < self._max_batch_size:
            try:
                batch.append(self._queue.get_nowait())
                continue
            except asyncio.QueueEmpty:
                pass
            try:
                batch.append(await asyncio.wait_for(self._queue.get(), closes - time.monotonic()))
            except TimeoutError:
                break
        return batch


class Service(TranslationServiceServicer):
    """The contract's `TranslateText` and `ListModels`."""

    def __init__(self, model: LoadedModel, batcher: Batcher) -> None:
        self._model = model
        self._batcher = batcher

    async def TranslateText(self, request: Any, context: Any) -> TranslateTextResponse:  # noqa: N802
        if request.HasField("options") or request.target_prefixes:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "the baseline translates greedily")
        try:
            prepared = [prepare(self._model, text) for text in request.texts]
        except SentenceTooLongError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        sources = [source for text in prepared for source in text.source_ids]
        try:
            found = iter(await self._batcher.submit(sources) if sources else [])
        except asyncio.QueueFull:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full")
        translations = [
            assemble(self._model, text, [(next(found),) for _ in text.source_ids]) for text in prepared
        ]
        options = DecodingOptions()
        return TranslateTextResponse(
            translations=[translation_message(text, options, include_tokens=False) for text in translations],
            model=self._model.name,
            model_digest=self._model.digest,
        )

    async def ListModels(self, request: Any, context: Any) -> ListModelsResponse:  # noqa: N802
        message = model_message(self._model)
        message.precision = "int8"
        return ListModelsResponse(models=[message])


def translate_with(translator: ctranslate2.Translator, config: ModelConfig) -> Any:
    """Returns the function from a batch's sentences to their translations."""

    def translate(sources: Sequence[SourceIds]) -> list[Hypothesis]:
        results = translator.translate_batch(
            [[str(token_id) for token_id in source] for source in sources],
            beam_size=1,
            max_batch_size=_MAX_BATCH_SIZE,
            max_decoding_length=longest_target(sources, config.max_target_length),
            min_decoding_length=0,
            return_end_token=True,
            return_scores=True,
            length_penalty=0,
        )
        return [_hypothesis(result, config.eos_id) for result in results]

    return translate


def _hypothesis(result: Any, eos_id: int) -> Hypothesis:
    """Returns a result as ours; it has the whole sentence's score alone, which is booked on the last token."""
    ids = tuple(int(token_id) for token_id in result.hypotheses[0])
    reason = FinishReason.EOS if ids[-1:] == (eos_id,) else FinishReason.LENGTH
    return Hypothesis(ids, (*[0.0] * (len(ids) - 1), result.scores[0]), reason)


async def serve(model: LoadedModel, batcher: Batcher, listen: str) -> None:
    """Serves until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = grpc.aio.server()
    add_TranslationServiceServicer_to_server(Service(model, batcher), server)  # type: ignore[no-untyped-call]
    host, _, port = listen.rpartition(":")
    bound = server.add_insecure_port(f"{host}:{port}")
    await server.start()
    task = asyncio.create_task(batcher.run())
    print(f"serving grpc={host}:{bound} model={model.name} engine=ctranslate2 precision=int8", flush=True)
    await stop.wait()
    task.cancel()
    await server.stop(1.0)


@click.command()
@click.option("--model", type=click.Path(exists=True, file_okay=False, path_type=Path), default=BUNDLED_MODEL)
@click.option(
    "--listen", default="127.0.0.1:50051", show_default=True, help="HOST:PORT; port 0 takes a free one."
)
@click.option("--threads", default=1, show_default=True, help="Threads of one operation.")
def main(model: Path, listen: str, threads: int) -> None:
    """Serves MODEL's weights with CTranslate2."""
    with tempfile.TemporaryDirectory(prefix="ctranslate2-") as folder:
        write_ctranslate2(Path(folder, "model"), *read_weights(model))
        translator = ctranslate2.Translator(
            str(Path(folder, "model")), compute_type="int8", inter_threads=1, intra_threads=threads
        )
        ours = load_model(model, device="cpu", precision="float32")  # its tokenizer and its limits
        batcher = Batcher(translate_with(translator, ours.config))
        event_loop.run(serve(ours, batcher, listen))


if __name__ == "__main__":
    main()
