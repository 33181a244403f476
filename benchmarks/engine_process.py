"""One engine in a process of its own: its memory is its own, and rounds of several engines interleave over pipes.

The child reads a request a line and writes an answer a line, both JSON. It imports what its engine needs and no more:
CTranslate2 runs without PyTorch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

Clock = Callable[[], float]
TokenIds = list[int]

CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}


class EngineError(Exception):
    """The engine can't be had here; the message says why."""


@dataclass(frozen=True)
class Run:
    """What a run over some sentences took.

    Attributes:
        seconds: For all of them.
        latencies: Of each sentence, from when it was taken into a batch to when its translation was there.
        num_tokens: Target tokens made, end-of-sentence included.
        peak_memory_bytes: Largest resident memory of the process during the run; on a GPU, of its memory.
        outputs: The translations' tokens, end-of-sentence last where it was reached, in the order of the sentences; empty
            unless asked for.
    """

    seconds: float
    latencies: list[float]
    num_tokens: int
    peak_memory_bytes: int
    outputs: list[TokenIds]


class EngineProcess:
    """The parent's end.

    Args:
        engine: dragoman, ctranslate2 or huggingface.
        precision: float32, int8 or what else the engine knows.
        model: Our model directory, or for CTranslate2 the converted one.
        device: cpu or cuda.
        threads: Of one operation.
    """

    def __init__(self, engine: str, precision: str, model: Path, device: str, threads: int) -> None:
        self.engine, self.precision, self.device = engine, precision, device
        command = [sys.executable, __file__, engine, precision, str(model), device, str(threads)]
        # Read when the libraries are loaded, so nothing later can say it.
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    @property
    def name(self) -> str:
        """Engine and precision."""
        return f"{self.engine} {self.precision}"

    def wait_until_ready(self) -> str:
        """Returns a description of the engine once it is loaded.

        Raises:
            EngineError: It can't be.
        """
        answer = self._receive()
        return str(answer["description"])

    def load(self, sources: list[TokenIds], eos_id: int, max_target_length: int) -> None:
        """Hands over the sentences of all runs that follow, and the model's end-of-sentence and its limit."""
        self._send({"sources": sources, "eos_id": eos_id, "max_target_length": max_target_length})
        self._receive()

    def run(
        self, count: int, beam_size: int, batch_size: int, *, clock: str = "wall", outputs: bool = False,
        patience: float = 1.0,
    ) -> Run:  # fmt: skip
        """Translates the first ``count`` sentences.

        Args:
            count: Sentences.
            beam_size: Of the search; 1 is greedy.
            batch_size: Sentences at once, with all their beams.
            clock: Of `CLOCKS`.
            outputs: Returns the translations, too.
            patience: CTranslate2's beam search ends when beam_size times this many hypotheses are finished.
        """
        self._send(
            {
                "count": count,
                "beam_size": beam_size,
                "batch_size": batch_size,
                "clock": clock,
                "outputs": outputs,
                "patience": patience,
            }
        )
        return Run(**self._receive())

    def stop(self) -> None:
        """Ends the process."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EngineError(f"{self.name}: the process ended ({self._process.wait()})")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EngineError(answer["error"])
        return answer


# The child's end


class Engine(Protocol):
    """What the child drives."""

    description: str
    patience: float
    max_target_length: int

    def prepare(self, source: TokenIds) -> Any:
        """Returns a sentence as the engine takes it; not timed."""
        ...

    def translate(self, sources: list[Any], beam_size: int, batch_size: int, clock: Clock) -> Timed:
        """Translates the sentences in an order of its own."""
        ...

    def peak_memory_bytes(self) -> int | None:
        """The device's peak since the last call of `reset_peak`; None where it is the process's."""
        ...

    def reset_peak(self) -> None:
        """Forgets the device's peak."""
        ...


@dataclass
class Timed:
    """Translations (token ids, or numbers as CTranslate2 writes them) and latencies, by the sentence's index."""

    outputs: dict[int, Any]
    latencies: dict[int, float]


class OnCPU:
    """An engine whose memory is the process's, with the usual end of a beam search."""

    patience = 1.0
    max_target_length = 256

    def peak_memory_bytes(self) -> int | None:
        return None

    def reset_peak(self) -> None:
        pass


class Dragoman(OnCPU):
    """Our own, as `dragoman-model translate` runs it."""

    def __init__(self, precision: str, model: Path, device: str, threads: int) -> None:
        import torch

        from dragoman_model.batch import RunningBatch
        from dragoman_model.checkpoint import load_model

        torch.set_num_threads(threads)
        self._torch = torch
        self._model = load_model(model, device=device, precision=precision)
        self._on_gpu = self._model.device.type == "cuda"
        self._joined: dict[int, float] = {}
        self._left: dict[int, float] = {}
        self._clock: Clock = time.perf_counter
        run = RunningBatch.run

        def timed_run(batch: RunningBatch, plan: Any) -> Any:
            now = self._clock()
            self._joined.update((sequence.id, now) for sequence in plan.admit)
            output = run(batch, plan)
            now = self._clock()
            self._left.update((sentence.id, now) for sentence in output.finished)
            return output

        RunningBatch.run = timed_run  # type: ignore[method-assign]  # in this process alone
        capability = torch.backends.cpu.get_cpu_capability()
        self.description = f"PyTorch {torch.__version__}, {self._model.device} ({capability})"

    def prepare(self, source: TokenIds) -> tuple[int, ...]:
        return tuple(source)

    def translate(self, sources: list[Any], beam_size: int, batch_size: int, clock: Clock) -> Timed:
        from dragoman_model.options import DecodingOptions
        from dragoman_model.translator import Translator

        self._clock = clock
        options = DecodingOptions(beam_size=beam_size)
        translator = Translator(self._model, max_batch_size=batch_size * beam_size)  # counts rows
        timed = Timed({}, {})
        if batch_size == 1:
            for index, source in enumerate(sources):
                started = clock()
                ((best, *_),) = translator.decode([source], options=options)
                timed.latencies[index] = clock() - started
                timed.outputs[index] = best.token_ids
            return timed
        for index, (best, *_) in enumerate(translator.decode(sources, options=options)):
            timed.outputs[index] = best.token_ids
            timed.latencies[index] = self._left[index] - self._joined[index]
        return timed

    def peak_memory_bytes(self) -> int | None:
        return self._torch.cuda.max_memory_reserved() if self._on_gpu else None

    def reset_peak(self) -> None:
        if self._on_gpu:
            self._torch.cuda.reset_peak_memory_stats()


class CTranslate2(OnCPU):
    """CTranslate2, on the model that `peers.write_ctranslate2` wrote; one call a batch, longest sentences first."""

    def __init__(self, precision: str, model: Path, device: str, threads: int) -> None:
        sys.modules["torch"] = None  # type: ignore[assignment]  # not needed, and it would count as memory of theirs
        import ctranslate2

        self._translator = ctranslate2.Translator(
            str(model), device=device, compute_type=precision, inter_threads=1, intra_threads=threads
        )
        self.description = f"CTranslate2 {ctranslate2.__version__}, computes {self._translator.compute_type}"

    def prepare(self, source: TokenIds) -> list[str]:
        return [str(token_id) for token_id in source]

    def translate(self, sources: list[Any], beam_size: int, batch_size: int, clock: Clock) -> Timed:
        timed = Timed({}, {})
        for batch in batches(sources, batch_size):
            started = clock()
            results = self._translator.translate_batch(
                [sources[index] for index in batch],
                beam_size=beam_size,
                patience=self.patience,
                max_decoding_length=longest_target(
                    (sources[index] for index in batch), self.max_target_length
                ),
                min_decoding_length=0,
                return_end_token=True,
            )
            seconds = clock() - started
            for index, result in zip(batch, results, strict=True):
                timed.outputs[index] = result.hypotheses[0]  # numbers once the clock stands
                timed.latencies[index] = seconds
        return timed


class HuggingFace(OnCPU):
    """Hugging Face's ``generate``; one call a batch, longest sentences first."""

    def __init__(self, precision: str, model: Path, device: str, threads: int) -> None:
        import torch
        import transformers
        from peers import hugging_face_model, read_weights

        torch.set_num_threads(threads)
        self._torch = torch
        config, weights = read_weights(model)
        self._device = torch.device(device)
        dtype = getattr(torch, precision)
        self._model = hugging_face_model(config, weights).to(self._device, dtype)
        self._generation_config = transformers.GenerationConfig
        self._pad_id = config.pad_id
        self._special_tokens = {
            "pad_token_id": config.pad_id,
            "bos_token_id": config.bos_id,
            "eos_token_id": config.eos_id,
            "decoder_start_token_id": config.decoder_start_id,
        }
        kind = type(self._model).__name__
        self.description = f"transformers {transformers.__version__}, {kind}, PyTorch {torch.__version__}"

    def prepare(self, source: TokenIds) -> TokenIds:
        return source

    def translate(self, sources: list[Any], beam_size: int, batch_size: int, clock: Clock) -> Timed:
        torch, pad_id = self._torch, self._pad_id
        timed = Timed({}, {})
        for batch in batches(sources, batch_size):
            started = clock()
            length = max(len(sources[index]) for index in batch)
            ids = torch.tensor(
                [[*sources[index], *[pad_id] * (length - len(sources[index]))] for index in batch],
                device=self._device,
            )
            with torch.inference_mode():
                results = self._model.generate(
                    ids,
                    attention_mask=(ids != pad_id).long(),
                    generation_config=self._generation_config(
                        num_beams=beam_size,
                        do_sample=False,
                        max_new_tokens=longest_target(
                            (sources[index] for index in batch), self.max_target_length
                        )
                        + 1,
                        **self._special_tokens,
                    ),
                ).tolist()
            seconds = clock() - started
            for index, result in zip(batch, results, strict=True):
                timed.outputs[index] = result[1:]  # without the start token
                timed.latencies[index] = seconds
        return timed

    def peak_memory_bytes(self) -> int | None:
        return self._torch.cuda.max_memory_reserved() if self._device.type == "cuda" else None

    def reset_peak(self) -> None:
        if self._device.type == "cuda":
            self._torch.cuda.reset_peak_memory_stats()


ENGINES: dict[str, Callable[[str, Path, str, int], Engine]] = {
    "dragoman": Dragoman,
    "ctranslate2": CTranslate2,
    "huggingface": HuggingFace,
}


def batches(sources: list[Any], batch_size: int) -> Iterator[list[int]]:
    """Yields the sentences' indices in batches, those of like length together; one by one they keep their order."""
    order = list(range(len(sources)))
    if batch_size > 1:
        order.sort(key=lambda index: -len(sources[index]))
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def longest_target(sources: Iterable[Any], max_target_length: int) -> int:
    """Returns how many tokens a batch's translations may take: our default for its longest sentence.

    Ours has a limit for each sentence; the others have one a batch, of sentences of like length.
    """
    return min(max_target_length - 1, 10 + 2 * max(map(len, sources)))


def until_eos(token_ids: Iterable[int | str], eos_id: int) -> TokenIds:
    """Returns the tokens up to end-of-sentence, or all where there is none; padding may follow it."""
    ids = [int(token_id) for token_id in token_ids]
    return ids[: ids.index(eos_id) + 1] if eos_id in ids else ids


def reset_peak_memory() -> None:
    """Sets the process's peak to what it holds now."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory_bytes() -> int:
    """Returns the process's peak since the last reset; the parent's is not in it, as it is in getrusage's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise EngineError("/proc/self/status says no VmHWM; memory is measured on Linux only")


def serve(
    engine: Engine, requests: Iterator[dict[str, Any]], answer: Callable[[dict[str, Any]], None]
) -> None:
    """Answers requests until they end."""
    sources: list[Any] = []
    eos_id = 0
    for request in requests:
        if "sources" in request:
            sources = [engine.prepare(source) for source in request["sources"]]
            eos_id, engine.max_target_length = request["eos_id"], request["max_target_length"]
            answer({})
            continue
        clock = CLOCKS[request["clock"]]
        engine.patience = request["patience"]
        reset_peak_memory()
        engine.reset_peak()
        started = clock()
        timed = engine.translate(
            sources[: request["count"]], request["beam_size"], request["batch_size"], clock
        )
        seconds = clock() - started
        peak = engine.peak_memory_bytes() or peak_memory_bytes()
        found = [until_eos(timed.outputs[index], eos_id) for index in range(request["count"])]
        run = Run(
            seconds=seconds,
            latencies=[timed.latencies[index] for index in range(request["count"])],
            num_tokens=sum(map(len, found)),
            peak_memory_bytes=peak,
            outputs=found if request["outputs"] else [],
        )
        answer(asdict(run))


@contextmanager
def private_stdout() -> Iterator[Any]:
    """Yields standard output and turns whatever else writes there to standard error."""
    with os.fdopen(os.dup(1), "w") as pipe:
        os.dup2(2, 1)
        yield pipe


def main(name: str, precision: str, model: str, device: str, threads: str) -> None:
    """Runs the child."""
    with private_stdout() as pipe:

        def answer(message: dict[str, Any]) -> None:
            print(json.dumps(message), file=pipe, flush=True)

        try:
            engine = ENGINES[name](precision, Path(model), device, int(threads))
        except Exception as error:
            answer({"error": f"{name} {precision}: {type(error).__name__}: {error}"})
            return
        answer({"description": engine.description})
        serve(engine, (json.loads(line) for line in sys.stdin), answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
