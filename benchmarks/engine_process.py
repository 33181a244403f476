"""One engine in a process of its own: its memory is its own, and rounds of several engines interleave over pipes.

Requests and answers are JSON, one a line; engine_worker.py is the other end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
        scores: Their log-probabilities a token, in the same order; empty where the engine was not asked or does not tell.
    """

    seconds: float
    latencies: list[float]
    num_tokens: int
    peak_memory_bytes: int
    outputs: list[TokenIds]
    scores: list[float] = field(default_factory=list)


class EngineProcess:
    """The parent's end.

    Args:
        engine: dragoman, dragoman-operators, ctranslate2 or huggingface.
        precision: float32, int8 or what else the engine knows.
        model: Our model directory, or for CTranslate2 the converted one.
        device: cpu or cuda.
        threads: Of one operation.
    """

    def __init__(self, engine: str, precision: str, model: Path, device: str, threads: int) -> None:
        self.engine, self.precision, self.device = engine, precision, device
        worker = str(Path(__file__).with_name("engine_worker.py"))
        command = [sys.executable, worker, engine, precision, str(model), device, str(threads)]
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
            outputs: Returns the translations and their scores, too.
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
