"""What the server measures, under the names that dashboards and alerts use.

The registry is an argument and no label holds a value that a caller can invent.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Iterable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

from dragoman_model.plan import BatchOutput, FinishedSentence
from dragoman_model.quality import QualityWarning, WarningKind
from dragoman_server.heartbeat import EngineState

# 1 ms is a step of a small model, 10 s longer than anybody waits.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
# Mean log-probability of a sentence's tokens: -0.1 is sure of itself, -2 is guessing.
LOG_PROBABILITIES = (-8.0, -4.0, -3.0, -2.0, -1.5, -1.0, -0.75, -0.5, -0.35, -0.25, -0.15, -0.1, -0.05, 0.0)
RATIOS = (0.25, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0)
# 0 looks at one token alone; 1.4 is like four tokens alike, 3 like twenty.
NATS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0)

UNKNOWN_MODEL = "unknown"


class Metrics:
    """The server's metrics, registered in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"dragoman_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"dragoman_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"dragoman_{name}", text, labels, buckets=buckets, registry=registry)

        self.requests = counter("requests", "Calls that ended.", "method", "model", "code")
        self.request_seconds = histogram(
            "request_seconds", "Seconds from a call's arrival to its end.", SECONDS, "method", "model"
        )
        self.refused = counter("refused", "Calls refused before any model work.", "reason")
        self.queue_wait_seconds = histogram(
            "queue_wait_seconds", "Seconds that a sentence waited for a row.", SECONDS, "model"
        )
        self.time_to_first_token_seconds = histogram(
            "time_to_first_token_seconds",
            "Seconds from a call's arrival to its first token.",
            SECONDS,
            "model",
        )
        self.sentences = counter(
            "sentences",
            "Sentences that ended: eos, length, blank, attention, score, cancelled, deadline, error.",
            "model",
            "finish_reason",
        )
        self.source_tokens = counter(
            "source_tokens", "Source tokens read, end-of-sentence included.", "model"
        )
        self.target_tokens = counter(
            "target_tokens",
            "Target tokens made, end-of-sentence included; of several hypotheses the best one's.",
            "model",
        )
        self.waiting_requests = gauge("waiting_requests", "Sentences that wait for a row.", "model")
        self.queue_slots = gauge("queue_slots", "Sentences that may wait.", "model")
        self.running_rows = gauge("running_rows", "Rows that are being decoded.", "model")
        self.row_slots = gauge("row_slots", "Rows that may be decoded at once.", "model")
        self.step_rows = histogram("step_rows", "Rows of each decoding step.", ROWS, "model")
        self.step_seconds = histogram(
            "step_seconds", "Seconds of each model pass.", SECONDS, "model", "phase"
        )
        self.step_tokens = counter(
            "step_tokens", "Token places that model passes computed.", "model", "phase", "kind"
        )
        self.token_log_probability = histogram(
            "token_log_probability",
            "Mean natural log-probability of a sentence's target tokens.",
            LOG_PROBABILITIES,
            "model",
        )
        self.length_ratio = histogram(
            "length_ratio", "Target tokens of a sentence over its source tokens.", RATIOS, "model"
        )
        self.warnings = counter(
            "warnings",
            "Warnings about translations: " + ", ".join(kind.value for kind in WarningKind) + ".",
            "model",
            "kind",
        )
        self.cross_attention_entropy_nats = histogram(
            "cross_attention_entropy_nats",
            "Entropy of cross-attention, mean over a sentence's target tokens, of the sentences looked at.",
            NATS,
            "model",
        )
        self.engine_state = gauge(
            "engine_state",
            "1 for the state that an engine is in, 0 for the others: "
            + ", ".join(state.value for state in EngineState)
            + ".",
            "model",
            "state",
        )
        self.device_memory_bytes = gauge("device_memory_bytes", "Memory on the accelerator.", "kind")
        self.model_info = gauge(
            "model_info", "A served model; always 1.", "model", "digest", "device", "precision"
        )
        self.build_info = gauge("build_info", "What runs here; always 1.", "version", "python", "torch")

    def of_model(self, model: str) -> ModelMetrics:
        """Returns the metrics of one served model."""
        return ModelMetrics(self, model)

    def observe_process(self) -> None:
        """Adds what prometheus-client knows of the process, and says which versions run."""
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.build_info.labels(
            version=_version("dragoman"), python=platform.python_version(), torch=_version("torch")
        ).set(1)

    def observe_another_process(self) -> None:
        """Adds what there is to be told of one more process beside the server's own."""
        ProcessCollector(registry=self.registry)

    def observe_device_memory(self, kinds: dict[str, Callable[[], float]]) -> None:
        """Reads each kind of device memory at every scrape."""
        for kind, read in kinds.items():
            self.device_memory_bytes.labels(kind=kind).set_function(read)

    def observe_engine(self, model: str, read_state: Callable[[], EngineState]) -> None:
        """Reads the state of a model's engine at every scrape."""

        def is_in(state: EngineState) -> Callable[[], float]:
            return lambda: float(read_state() is state)

        for state in EngineState:
            self.engine_state.labels(model, state.value).set_function(is_in(state))


class ModelMetrics:
    """One model's metrics with their labels looked up once, since they are written at every step."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self.queue_wait_seconds = metrics.queue_wait_seconds.labels(model)
        self.time_to_first_token_seconds = metrics.time_to_first_token_seconds.labels(model)
        self.source_tokens = metrics.source_tokens.labels(model)
        self.target_tokens = metrics.target_tokens.labels(model)
        self.waiting_requests = metrics.waiting_requests.labels(model)
        self.queue_slots = metrics.queue_slots.labels(model)
        self.running_rows = metrics.running_rows.labels(model)
        self.row_slots = metrics.row_slots.labels(model)
        self.step_rows = metrics.step_rows.labels(model)
        self.token_log_probability = metrics.token_log_probability.labels(model)
        self.length_ratio = metrics.length_ratio.labels(model)
        self.cross_attention_entropy_nats = metrics.cross_attention_entropy_nats.labels(model)
        self._warnings = {kind: metrics.warnings.labels(model, kind.value) for kind in WarningKind}
        self._sentences = {
            reason: metrics.sentences.labels(model, reason)
            for reason in ("eos", "length", "blank", "attention", "score", "cancelled", "deadline", "error")
        }
        self._step_seconds = {
            phase: metrics.step_seconds.labels(model, phase) for phase in ("prefill", "decode")
        }
        self._step_tokens = {
            (phase, kind): metrics.step_tokens.labels(model, phase, kind)
            for phase in ("prefill", "decode")
            for kind in ("real", "padding")
        }

    def count_sentences(self, reason: str, count: int = 1) -> None:
        """Counts sentences that ended."""
        self._sentences[reason].inc(count)

    def count_warnings(self, warnings: Iterable[QualityWarning]) -> None:
        """Counts warnings about a translation."""
        for warning in warnings:
            self._warnings[warning.kind].inc()

    def observe_step(self, output: BatchOutput) -> None:
        """Records the model passes of one step."""
        for phase, stats in (("prefill", output.prefill), ("decode", output.decode)):
            if stats is not None:
                self._step_seconds[phase].observe(stats.seconds)
                self._step_tokens[phase, "real"].inc(stats.real_tokens)
                self._step_tokens[phase, "padding"].inc(stats.padding_tokens)
        if output.decode is not None:
            self.step_rows.observe(output.decode.rows)

    def observe_sentence(self, sentence: FinishedSentence, num_source_tokens: int) -> None:
        """Records a sentence that was translated."""
        best = sentence.best
        num_tokens = len(best.token_ids)
        self.count_sentences(best.finish_reason.name.lower())
        self.target_tokens.inc(num_tokens)
        self.token_log_probability.observe(best.score / num_tokens)
        self.length_ratio.observe(num_tokens / num_source_tokens)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
