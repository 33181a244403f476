"""A small real gRPC server whose answers a test scripts: real wire, no model."""
# ruff: noqa: N802 - methods are named as in the contract

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.rpc import status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from dragoman import v1
from tests.client.failures import Failure, abort, failure
from tests.client.scripted_attention import DIGEST, GERMAN, NUM_HEADS, NUM_LAYERS, SENTENCE, attention_of


def translated(text: str) -> str:
    """What the scripted server makes of a text."""
    return text if text.strip() == "" else f"<{text}>"


@dataclass
class Script:
    """What the server does, and what it saw.

    Attributes:
        failures: Statuses for the next calls to TranslateText, first come first served; then they succeed.
        translate: The text → its translation.
        before_translate: Called with every request before it is answered.
        warnings: Of every translation.
        attention_stream: Replaces DumpAttention's answer.
        stream: Replaces StreamTranslateText's answer.
        stream_failure: Ends that.
        batch: Replaces TranslateBatch's answer to one message; what it raises ends the call.
        batch_failures: Of the next calls to TranslateBatch: after so many messages, fail with the status.
        item_failures: Status of a text of TranslateBatch.
        digest: Of the model that TranslateBatch translates with.
        max_text_count: A call with more texts is refused.
        precision: That the model is listed with, and TranslateBatch translates in.
        stream_ended: Set when a StreamTranslateText or TranslateBatch call is over, however it ended.
    """

    failures: list[Failure] = field(default_factory=list)
    translate: Callable[[str], str] = translated
    before_translate: Callable[[v1.TranslateTextRequest], None] = lambda request: None
    finish_reason: Any = v1.FinishReason.FINISH_REASON_EOS
    warnings: list[v1.Warning] = field(default_factory=list)
    attention_stream: Callable[[v1.DumpAttentionRequest], Iterator[v1.DumpAttentionResponse]] | None = None
    stream: Callable[[v1.StreamTranslateTextRequest], Iterator[v1.StreamTranslateTextResponse]] | None = None
    stream_failure: Failure | None = None
    batch: Callable[[v1.TranslateBatchRequest], Iterator[v1.TranslateBatchResponse]] | None = None
    batch_failures: list[tuple[int, Failure]] = field(default_factory=list)
    item_failures: dict[str, status_pb2.Status] = field(default_factory=dict)
    max_text_count: int = 256
    precision: str = "float32"
    digest: str = DIGEST
    stream_ended: threading.Event = field(default_factory=threading.Event)
    stream_requests: list[v1.StreamTranslateTextRequest] = field(default_factory=list)
    batch_calls: list[list[v1.TranslateBatchRequest]] = field(default_factory=list)
    score_requests: list[v1.ScoreTextRequest] = field(default_factory=list)
    requests: list[v1.TranslateTextRequest] = field(default_factory=list)
    attention_requests: list[v1.DumpAttentionRequest] = field(default_factory=list)
    request_ids: list[str] = field(default_factory=list)
    deadlines: list[float] = field(default_factory=list)


class ScriptedService(v1.TranslationServiceServicer):
    def __init__(self, script: Script) -> None:
        self.script = script

    def TranslateText(self, request: v1.TranslateTextRequest, context: Any) -> v1.TranslateTextResponse:
        script = self.script
        script.requests.append(request)
        script.request_ids.append(dict(context.invocation_metadata())["x-request-id"])
        script.deadlines.append(context.time_remaining())
        script.before_translate(request)
        if script.failures:
            abort(context, script.failures.pop(0))
        self._check_count("texts", len(request.texts), context)
        return v1.TranslateTextResponse(
            translations=[self._translation(text, request) for text in request.texts],
            model="en-de",
            model_digest=DIGEST,
        )

    def _check_count(self, name: str, count: int, context: Any) -> None:
        if count > self.script.max_text_count:
            description = f"{count} given; 1 to {self.script.max_text_count} allowed"
            abort(
                context,
                failure(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"{name}: {description}",
                    reason="INVALID_ARGUMENT",
                    violations={name: description},
                ),
            )

    def StreamTranslateText(
        self, request: v1.StreamTranslateTextRequest, context: Any
    ) -> Iterator[v1.StreamTranslateTextResponse]:
        script = self.script
        script.stream_requests.append(request)
        script.deadlines.append(context.time_remaining())
        context.add_callback(script.stream_ended.set)
        if script.failures:
            abort(context, script.failures.pop(0))
        if script.stream:
            yield from script.stream(request)
            if script.stream_failure:
                abort(context, script.stream_failure)
            return
        translation = self._translation(request.text, request)
        for word in re.findall(r"\s*\S+|\s+$", translation.text):
            yield v1.StreamTranslateTextResponse(delta=v1.TextDelta(text=word))
        result = v1.TranslateTextResponse(translations=[translation], model="en-de", model_digest=DIGEST)
        yield v1.StreamTranslateTextResponse(result=result)

    def TranslateBatch(
        self, requests: Iterator[v1.TranslateBatchRequest], context: Any
    ) -> Iterator[v1.TranslateBatchResponse]:
        script = self.script
        seen: list[v1.TranslateBatchRequest] = []
        script.batch_calls.append(seen)
        script.request_ids.append(dict(context.invocation_metadata())["x-request-id"])
        context.add_callback(script.stream_ended.set)
        limit, status = script.batch_failures.pop(0) if script.batch_failures else (-1, None)
        if limit == 0 and status:
            abort(context, status)
        for request in requests:
            seen.append(request)
            if script.batch:
                yield from script.batch(request)
            else:
                yield self.answer(request, seen[0])
            if len(seen) == limit and status:
                abort(context, status)

    def answer(
        self, request: v1.TranslateBatchRequest, first: v1.TranslateBatchRequest
    ) -> v1.TranslateBatchResponse:
        """Answers a message, its last text first."""
        response = v1.TranslateBatchResponse(
            model="en-de", model_digest=self.script.digest, precision=self.script.precision
        )
        for item in reversed(request.items):
            if error := self.script.item_failures.get(item.text):
                response.results.add(id=item.id, error=error)
            else:
                response.results.add(id=item.id, translation=self._translation(item.text, first))
        return response

    def ScoreText(self, request: v1.ScoreTextRequest, context: Any) -> v1.ScoreTextResponse:
        self.script.score_requests.append(request)
        if self.script.failures:
            abort(context, self.script.failures.pop(0))
        self._check_count("items", len(request.items), context)
        scores = []
        for item in request.items:
            words = item.translation.split()
            tokens = [v1.TokenScore(piece="▁" + word, log_probability=-0.5) for word in words]
            tokens.append(v1.TokenScore(piece="</s>", log_probability=-0.25))
            score = -0.5 * len(words) - 0.25
            scores.append(v1.Score(score=score, normalized_score=score / (len(words) + 1), tokens=tokens))
        return v1.ScoreTextResponse(scores=scores, model="en-de", model_digest=DIGEST)

    def _translation(
        self,
        text: str,
        request: v1.TranslateTextRequest | v1.StreamTranslateTextRequest | v1.TranslateBatchRequest,
    ) -> v1.Translation:
        if not text.strip():
            return v1.Translation(text=text, finish_reason=v1.FinishReason.FINISH_REASON_BLANK)
        result = self.script.translate(text)
        translation = v1.Translation(
            text=result,
            finish_reason=self.script.finish_reason,
            score=-1.5,
            normalized_score=-0.5,
            source_token_count=4,
            target_token_count=3,
            sentence_count=1,
            warnings=self.script.warnings,
        )
        if request.output.include_alignments:
            # Each word stands for the one at its place, the first for nothing.
            places = [[m.span() for m in re.finditer(r"\S+", side)] for side in (text, result)]
            for index, (source, target) in enumerate(zip(*places, strict=False)):
                translation.word_links.add(
                    source=v1.TextSpan(start=source[0], end=source[1]) if index else None,
                    target=v1.TextSpan(start=target[0], end=target[1]),
                    probability=0.5,
                )
        if request.output.include_tokens:
            translation.tokens.add(
                piece="▁" + result, log_probability=-0.25, span=v1.TextSpan(start=0, end=len(result))
            )
            translation.tokens.add(piece="</s>", log_probability=-0.125)
        if request.options.num_hypotheses > 1:
            for index in range(request.options.num_hypotheses):
                translation.alternatives.add(
                    text=result + "'" * index,
                    finish_reason=v1.FinishReason.FINISH_REASON_LENGTH
                    if index
                    else self.script.finish_reason,
                    score=-1.5 * (index + 1),
                    normalized_score=-0.5 * (index + 1),
                    target_token_count=3,
                    tokens=translation.tokens,
                )
        if request.options.HasField("seed"):
            translation.seed = request.options.seed
        return translation

    def DumpAttention(
        self, request: v1.DumpAttentionRequest, context: Any
    ) -> Iterator[v1.DumpAttentionResponse]:
        self.script.attention_requests.append(request)
        if self.script.attention_stream:
            yield from self.script.attention_stream(request)
            return
        sentences = [(m[0], m.start()) for m in re.finditer(r"\S[^.!?]*[.!?]*", request.text)]
        if request.HasField("translation"):
            sentences = [(request.text, 0)]
        if not sentences:
            blank = v1.Translation(text=request.text, finish_reason=v1.FinishReason.FINISH_REASON_BLANK)
            yield v1.DumpAttentionResponse(header=v1.AttentionHeader(translation=blank, model="en-de"))
        for name, numbers, limit in (
            ("layer", request.selection.layers, NUM_LAYERS),
            ("head", request.selection.heads, NUM_HEADS),
        ):
            if any(number >= limit for number in numbers):
                violations = {
                    f"selection.{name}s": f"{max(numbers)} given; there are {name}s 0 to {limit - 1}"
                }
                abort(context, failure(grpc.StatusCode.INVALID_ARGUMENT, "refused", violations=violations))
        for index, (sentence, start) in enumerate(sentences):
            result = request.translation or (GERMAN if sentence == SENTENCE else translated(sentence))
            for response in attention_of(sentence, start, result, index, len(sentences), request.selection):
                if response.HasField("header"):
                    response.header.translation.warnings.extend(self.script.warnings)
                yield response

    def ListModels(self, request: v1.ListModelsRequest, context: Any) -> v1.ListModelsResponse:
        return v1.ListModelsResponse(
            models=[
                v1.Model(
                    name="en-de",
                    language_pairs=[v1.LanguagePair(source_language_code="en", target_language_code="de")],
                    digest=DIGEST,
                    precision=self.script.precision,
                    device="cpu",
                    parameter_count=7_375_360,
                    encoder_layer_count=4,
                    decoder_layer_count=2,
                    head_count=4,
                    max_source_token_count=256,
                    max_target_token_count=256,
                    kernels="PyTorch",
                )
            ],
            limits=v1.Limits(
                max_text_count=256,
                max_text_characters=20_000,
                max_beam_size=1,
                max_num_hypotheses=1,
                max_sentence_rows=1,
                max_batch_size=64,
                max_queue_size=1024,
                max_bulk_streams=32,
                max_attention_calls=16,
            ),
        )


@dataclass(frozen=True)
class ScriptedServer:
    """A running server."""

    address: str
    script: Script
    health: health.HealthServicer


@contextmanager
def serve(script: Script | None = None) -> Iterator[ScriptedServer]:
    """Runs a server on a free loopback port."""
    script = script or Script()
    server = grpc.server(ThreadPoolExecutor(max_workers=8))
    v1.add_TranslationServiceServicer_to_server(ScriptedService(script), server)
    checks = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    for service in ("", "en-de"):
        checks.set(service, health_pb2.HealthCheckResponse.SERVING)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield ScriptedServer(f"127.0.0.1:{port}", script, checks)
    finally:
        server.stop(None).wait()


if __name__ == "__main__":  # to look at the commands by hand
    with serve() as running:
        print(running.address, flush=True)
        input()
