"""A model's engine, in a thread of the server or in a process of its own, as the configuration says."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry

from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import LoadedModel
from dragoman_server.catalogue import ServedModel
from dragoman_server.config import ServerConfig
from dragoman_server.cpus import available_cpus
from dragoman_server.engine import Engine
from dragoman_server.engine_process import EngineProcess
from dragoman_server.errors import ModelError
from dragoman_server.heartbeat import Heartbeat, state_of
from dragoman_server.limits import SchedulerLimits
from dragoman_server.logs import log_event
from dragoman_server.merged_registry import MergedRegistry
from dragoman_server.metrics import Metrics, ModelMetrics
from dragoman_server.room import QueueState
from dragoman_server.scheduler import Scheduler

logger = logging.getLogger(__name__)


class Joinable(Protocol):
    """What `join_all` asks of an engine."""

    def join(self, seconds: float) -> None:
        """Waits for it to end, no longer than so many seconds."""
        ...


def set_up_engine(
    model: LoadedModel,
    config: ServerConfig,
    metrics: Metrics,
    registry: MergedRegistry,
    *,
    num_threads: int,
    on_failure: Callable[[], None],
) -> ServedModel:
    """Returns a model with an engine that is yet to be started.

    Args:
        model: The model.
        config: How to serve it.
        metrics: The server's.
        registry: Theirs; takes in what an engine's process holds.
        num_threads: Threads of one tensor operation.
        on_failure: Called on the event loop when no call will be worked on any more.

    Raises:
        ModelError: It is to have a process, and can't.
    """
    limits = SchedulerLimits(
        max_batch_size=config.max_batch_size,
        max_queue_size=config.max_queue_size,
        max_queue_seconds=config.max_queue_seconds,
        # Each of these calls has one sentence waiting, and so has the sample.
        max_attention_queue_size=config.max_attention_calls + 1,
        max_prefill_tokens=config.max_prefill_tokens,
    )
    metrics.model_info.labels(model.name, model.digest, str(model.device), model.precision).set(1)
    batch = RunningBatch(model.transformer)
    runs_in_process = _runs_in_process(model, config)
    log_event(
        logger,
        logging.INFO,
        "model loaded",
        model=model.name,
        device=str(model.device),
        precision=model.precision,
        kernels=batch.kernels,
        engine="process" if runs_in_process else "thread",
        threads=num_threads,
        digest=model.digest,
    )
    model_metrics = metrics.of_model(model.name)
    heartbeat = Heartbeat()

    def new_engine(
        its_metrics: ModelMetrics,
        on_its_failure: Callable[[], None],
        on_queue_change: Callable[[QueueState], None] | None = None,
    ) -> Engine:
        return Engine(
            model.name,
            batch,
            Scheduler(limits, its_metrics, time.monotonic),
            num_threads=num_threads,
            on_failure=on_its_failure,
            on_queue_change=on_queue_change,
            heartbeat=heartbeat,
        )

    def new_engine_there(
        its_registry: CollectorRegistry,
        on_its_failure: Callable[[], None],
        on_queue_change: Callable[[QueueState], None],
    ) -> Engine:
        there = Metrics(its_registry)
        there.observe_another_process()
        return new_engine(there.of_model(model.name), on_its_failure, on_queue_change)

    engine: Engine | EngineProcess
    if runs_in_process:
        engine = EngineProcess(model.name, new_engine_there, limits, heartbeat, on_failure=on_failure)
        registry.add(engine.metrics)
    else:
        engine = new_engine(model_metrics, on_failure)
    metrics.observe_engine(model.name, lambda: state_of(engine))
    return ServedModel(
        model,
        engine,
        model_metrics,
        lambda: batch.kernels,
        attention_sample_share=config.attention_sample_share,
    )


def join_all(
    engines: Sequence[Joinable], seconds: float, clock: Callable[[], float] = time.monotonic
) -> None:
    """Waits for engines that were told to stop, for all together no longer than so many seconds."""
    end = clock() + seconds
    for engine in engines:
        engine.join(max(0.0, end - clock()))


def _runs_in_process(model: LoadedModel, config: ServerConfig) -> bool:
    """Returns whether a model's engine gets a process of its own, which needs a CPU beside the event loop's to pay."""
    # What a process holds on a GPU, another can't take over; and only on Linux is it safe to fork once libraries are loaded.
    is_possible = model.device.type == "cpu" and sys.platform == "linux"
    if config.engine == "process" and not is_possible:
        raise ModelError(
            f"model {model.name!r} is on {model.device}: its engine can have a process of its own on a CPU and Linux alone; "
            "set engine to auto or thread"
        )
    return config.engine == "process" or (config.engine == "auto" and is_possible and available_cpus() > 1)
