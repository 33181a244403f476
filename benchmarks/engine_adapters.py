"""Each engine behind the same few methods; libraries are imported by the engine that needs them alone."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from engine_process import Clock, TokenIds


class Engine(Protocol):
    """What a worker drives."""

    description: str
    patience: float
    max_target_length: int
    wants_scores: bool

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
    scores: dict[int, float] = field(default_factory=dict)


class OnCPU:
    """An engine whose memory is the process's, with the usual end of a beam search."""

    patience = 1.0
    max_target_length = 256
    wants_scores = False

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
        self._translators: dict[int, Any] = {}
        capability = torch.backends.cpu.get_cpu_capability()
        self.description = f"PyTorch {torch.__version__}, {self._model.device} ({capability})"
        if self._on_gpu:
            self.description += f", {RunningBatch(self._model.transformer).kernels}"

    def prepare(self, source: TokenIds) -> tuple[int, ...]:
        return tuple(source)

    def translate(self, sources: list[Any], beam_size: int, batch_size: int, clock: Clock) -> Timed:
        from dragoman_model.options import DecodingOptions

        self._clock = clock
        # The peers search freely, too.
        options = DecodingOptions(beam_size=beam_size, keep_numbers=False)
        translator = self._translator(batch_size * beam_size)
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
            timed.scores[index] = best.score / len(best.token_ids)
            timed.latencies[index] = self._left[index] - self._joined[index]
        return timed

    def _translator(self, num_rows: int) -> Any:
        """Returns what translates with so many rows: on a CPU a new one, on a GPU the one that has recorded its steps."""
        from dragoman_model.translator import Translator

        translator = self._translators.get(num_rows) or Translator(self._model, max_batch_size=num_rows)
        if self._on_gpu:
            self._translators[num_rows] = translator
        return translator

    def peak_memory_bytes(self) -> int | None:
        return self._torch.cuda.max_memory_reserved() if self._on_gpu else None

    def reset_peak(self) -> None:
        if self._on_gpu:
            self._torch.cuda.reset_peak_memory_stats()


class DragomanOperators(Dragoman):
    """Our own without kernels of its own and without graphs: PyTorch's operators, one by one."""

    def __init__(self, precision: str, model: Path, device: str, threads: int) -> None:
        os.environ["DRAGOMAN_KERNELS"] = "none"  # in this process alone
        super().__init__(precision, model, device, threads)


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
                return_scores=self.wants_scores,
            )
            seconds = clock() - started
            for index, result in zip(batch, results, strict=True):
                timed.outputs[index] = result.hypotheses[0]  # numbers once the clock stands
                if self.wants_scores:
                    timed.scores[index] = result.scores[0]
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
    "dragoman-operators": DragomanOperators,
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
