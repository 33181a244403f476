"""Puts the server together, runs it, and takes it down again."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import torch
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from prometheus_client import CollectorRegistry, disable_created_metrics

from dragoman.v1 import add_TranslationServiceServicer_to_server
from dragoman_model import errors as model_errors
from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import LoadedModel, load_model
from dragoman_model.plan import Plan
from dragoman_model.plan import Sequence as BatchSequence
from dragoman_server.catalogue import Catalogue, ServedModel
from dragoman_server.config import ServerConfig, split_address
from dragoman_server.cpus import available_cpus, default_num_threads
from dragoman_server.doorway import Doorway
from dragoman_server.engine import Engine
from dragoman_server.engine_process import EngineProcess
from dragoman_server.errors import AddressError, DrainingError, ModelError
from dragoman_server.health import SERVICE_NAME, Health
from dragoman_server.heartbeat import Heartbeat
from dragoman_server.interceptors import CallInterceptor
from dragoman_server.limits import CallLimits, SchedulerLimits
from dragoman_server.logs import log_event
from dragoman_server.merged_registry import MergedRegistry
from dragoman_server.metrics import Metrics, ModelMetrics
from dragoman_server.monitoring import MonitoringServer
from dragoman_server.room import QueueState
from dragoman_server.scheduler import Scheduler
from dragoman_server.service import TranslationService

logger = logging.getLogger(__name__)

# UTF-8 takes at most 4 bytes a code point; what stands around the texts is small.
_MAX_BYTES_PER_CHARACTER = 4
_MESSAGE_OVERHEAD_BYTES = 1 << 20
_MAX_MESSAGE_BYTES = (1 << 31) - 1
# Calls on one connection that may be on their way to a refusal, which takes a fraction of a millisecond each.
_MAX_REFUSALS = 1000
# How long the event loop may keep the interpreter from an engine's thread, which asks for it after each kernel. Python's own
# 5 ms are as long as a step, and the batch would stand still as often as calls are refused meanwhile.
_SWITCH_SECONDS = 0.001
# Answers that are already made get this long to leave after the engines stopped.
_FLUSH_SECONDS = 1.0


class App:
    """A server with its models, from start to stop; built and used on one event loop.

    Args:
        config: How to serve.
        models: What to serve, as ``load_models`` returns it.
    """

    def __init__(self, config: ServerConfig, models: Sequence[LoadedModel]) -> None:
        self._config = config
        self.registry = MergedRegistry()
        metrics = Metrics(self.registry)
        metrics.observe_process()
        _observe_devices(metrics, models)
        num_threads = config.threads or default_num_threads(len(models), available_cpus())
        self._catalogue = Catalogue([self._serve(model, metrics, num_threads) for model in models])
        self.health = Health(self._catalogue, hang_seconds=config.hang_seconds)
        self.interceptor = CallInterceptor(metrics)
        self._doorway = Doorway(metrics, self._catalogue, lambda: not self.interceptor.is_draining)
        self.grpc_address = ""
        self.http_address = "off"

    async def start(self) -> None:
        """Starts to serve.

        Raises:
            AddressError: An address can't be listened on.
        """
        self._server = self._build_server()
        self.grpc_address = self._bind(self._server)
        self._monitoring = self._build_monitoring()
        for served in self._catalogue.models:
            served.engine.start()
        await self.health.refresh()
        self._watching = asyncio.create_task(self.health.watch())
        await self._server.start()
        if self._monitoring is not None:
            self._monitoring.start()

    async def stop(self, stop_now: asyncio.Event | None = None) -> None:
        """Refuses new calls, lets running ones end within the grace period, and stops.

        Args:
            stop_now: Cuts the grace period short.
        """
        self.interceptor.is_draining = True
        self.service.drain()
        await self.health.drain()
        log_event(logger, logging.INFO, "draining", grace_seconds=self._config.grace_seconds)
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(self.interceptor.wait_until_idle())]
        if stop_now is not None:
            waits.append(asyncio.create_task(stop_now.wait()))
        await asyncio.wait(waits, timeout=self._config.grace_seconds, return_when=asyncio.FIRST_COMPLETED)
        was_idle = waits[0].done()
        for wait in waits:
            wait.cancel()
        self._watching.cancel()
        for served in self._catalogue.models:
            served.engine.stop(DrainingError())
        await self._server.stop(_FLUSH_SECONDS)
        if self._monitoring is not None:
            self._monitoring.stop()
        log_event(logger, logging.INFO, "stopped", all_calls_ended=was_idle)

    def describe(self) -> str:
        """Returns the line that says where and what is served."""
        models = [served.model for served in self._catalogue.models]
        fields = {
            "grpc": self.grpc_address,
            "http": self.http_address,
            "model": ",".join(model.name for model in models),
            "device": ",".join(dict.fromkeys(str(model.device) for model in models)),
            "precision": ",".join(dict.fromkeys(model.precision for model in models)),
        }
        return "serving " + " ".join(f"{name}={value}" for name, value in fields.items())

    def _serve(self, model: LoadedModel, metrics: Metrics, num_threads: int) -> ServedModel:
        config = self._config
        limits = SchedulerLimits(
            max_batch_size=config.max_batch_size,
            max_queue_size=config.max_queue_size,
            max_attention_queue_size=config.max_attention_calls,  # each such call has one sentence waiting
            max_prefill_tokens=config.max_prefill_tokens,
        )
        metrics.model_info.labels(model.name, model.digest, str(model.device), model.precision).set(1)
        batch = RunningBatch(model.transformer)
        runs_in_process = self._runs_in_process(model)
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
            on_failure: Callable[[], None],
            on_queue_change: Callable[[QueueState], None] | None = None,
        ) -> Engine:
            return Engine(
                model.name,
                batch,
                Scheduler(limits, its_metrics, time.monotonic),
                num_threads=num_threads,
                on_failure=on_failure,
                on_queue_change=on_queue_change,
                heartbeat=heartbeat,
            )

        def new_engine_there(
            registry: CollectorRegistry,
            on_failure: Callable[[], None],
            on_queue_change: Callable[[QueueState], None],
        ) -> Engine:
            there = Metrics(registry)
            there.observe_another_process()
            return new_engine(there.of_model(model.name), on_failure, on_queue_change)

        engine: Engine | EngineProcess
        if runs_in_process:
            engine = EngineProcess(
                model.name, new_engine_there, limits, heartbeat, on_failure=self._on_engine_failure
            )
            self.registry.add(engine.collect)
        else:
            engine = new_engine(model_metrics, self._on_engine_failure)
        return ServedModel(
            model, engine, model_metrics, batch.kernels, attention_sample_share=config.attention_sample_share
        )

    def _runs_in_process(self, model: LoadedModel) -> bool:
        """Returns whether a model's engine gets a process of its own, which needs a CPU beside the event loop's to pay."""
        # What a process holds on a GPU, another can't take over; and only on Linux is it safe to fork once libraries are loaded.
        is_possible = model.device.type == "cpu" and sys.platform == "linux"
        if self._config.engine == "process" and not is_possible:
            raise ModelError(f"model {model.name!r} is on {model.device}: its engine can have a process of its own on a CPU and "
                             "Linux alone; set engine to auto or thread")  # fmt: skip
        return self._config.engine == "process" or (
            self._config.engine == "auto" and is_possible and available_cpus() > 1
        )

    def _on_engine_failure(self) -> None:
        self._refreshing = asyncio.ensure_future(self.health.refresh())

    def _build_server(self) -> grpc.aio.Server:
        config = self._config
        text_bytes = config.max_text_count * config.max_text_characters * _MAX_BYTES_PER_CHARACTER
        server = grpc.aio.server(
            interceptors=[self._doorway, self.interceptor],
            options=[
                # Two servers on one port would each get some of the calls; better an error.
                ("grpc.so_reuseport", 0),
                (
                    "grpc.max_receive_message_length",
                    min(text_bytes + _MESSAGE_OVERHEAD_BYTES, _MAX_MESSAGE_BYTES),
                ),
                # gRPC unpacks a compressed message whole before it looks at the limit above, and a small one may hold
                # gigabytes. Bit 0 is "not compressed".
                ("grpc.compression_enabled_algorithms_bitset", 1),
                # Clients that keep an idle connection open may ask whether it still stands.
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
                # What comes faster than it can even be refused would pile up in gRPC's own memory without bound. More calls
                # on one connection than could be in work are turned away there, before any of our code (UNAVAILABLE).
                ("grpc.max_concurrent_streams", _max_calls(config, len(self._catalogue.models))),
            ],
        )
        # What doesn't fit the batch could wait for ever.
        max_sentence_rows = min(config.max_sentence_rows, config.max_batch_size)
        limits = CallLimits(
            max_text_count=config.max_text_count,
            max_text_characters=config.max_text_characters,
            max_beam_size=min(config.max_beam_size, max_sentence_rows),
            max_num_hypotheses=min(config.max_num_hypotheses, max_sentence_rows),
            max_sentence_rows=max_sentence_rows,
            max_batch_size=config.max_batch_size,
            max_queue_size=config.max_queue_size,
            max_bulk_streams=config.max_bulk_streams,
            max_attention_calls=config.max_attention_calls,
        )
        self.service = TranslationService(self._catalogue, limits)
        add_TranslationServiceServicer_to_server(self.service, server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health.servicer, server)
        reflection.enable_server_reflection(
            (SERVICE_NAME, "grpc.health.v1.Health", reflection.SERVICE_NAME), server
        )
        return server

    def _bind(self, server: grpc.aio.Server) -> str:
        host, port = split_address("listen", self._config.listen)
        target = f"[{host}]" if ":" in host else host
        try:
            port = server.add_insecure_port(f"{target}:{port}")
        except RuntimeError as error:
            raise AddressError(f"listen: can't listen on {self._config.listen}") from error
        return f"{target}:{port}"

    def _build_monitoring(self) -> MonitoringServer | None:
        if not self._config.http:
            return None
        host, port = split_address("http", self._config.http)
        server = MonitoringServer(
            host,
            port,
            self.registry,
            is_alive=lambda: self.health.is_alive,
            is_ready=lambda: self.health.is_ready,
        )
        self.http_address = f"{f'[{host}]' if ':' in host else host}:{server.port}"
        return server


def _max_calls(config: ServerConfig, num_models: int) -> int:
    """Returns how many calls can be in work at once, beside those that are just being refused."""
    of_a_model = (
        config.max_queue_size + config.max_batch_size + config.max_bulk_streams + config.max_attention_calls
    )
    return min(num_models * of_a_model + _MAX_REFUSALS, _MAX_MESSAGE_BYTES)


def load_models(config: ServerConfig) -> list[LoadedModel]:
    """Returns the models that the configuration names, each proven to run.

    Raises:
        ModelError: One can't be loaded or run, or two have the same name; one line says which and why.
    """
    # Loading computes a little. With more threads it would start some, and a process that is forked then can't compute with them.
    torch.set_num_threads(1)
    models: list[LoadedModel] = []
    for directory in config.model:
        try:
            model = load_model(directory, device=config.device, precision=config.precision)
        except model_errors.ModelError as error:
            raise ModelError(" ".join(str(error).split())) from error
        if any(model.name == other.name for other in models):
            raise ModelError(f"{directory}: another model is named {model.name!r}; rename the directory")
        _warm_up(model)
        models.append(model)
    return models


def _warm_up(model: LoadedModel) -> None:
    """Runs a sentence, so that the first caller doesn't wait for what a device sets up at first use."""
    sentence = BatchSequence(id=0, source_ids=(model.config.unk_id, model.config.eos_id), max_length=1)
    try:
        RunningBatch(model.transformer).run(Plan(admit=(sentence,)))
    except RuntimeError as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(f"model {model.name!r} doesn't run on {model.device}: {reason}") from error


def check_addresses(config: ServerConfig) -> None:
    """Tries both addresses, before a model is loaded and because gRPC says of a failure neither why nor in one line.

    Raises:
        AddressError: One can't be listened on.
    """
    for name, setting in (("listen", config.listen), ("http", config.http)):
        if not setting:
            continue
        host, port = split_address(name, setting)
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            raise AddressError(f"{name}: can't listen on {setting}: {error.strerror or error}") from error


def _observe_devices(metrics: Metrics, models: Sequence[LoadedModel]) -> None:
    devices = {model.device for model in models if model.device.type == "cuda"}
    if devices:
        metrics.observe_device_memory(
            {
                "allocated": lambda: float(sum(map(torch.cuda.memory_allocated, devices))),
                "reserved": lambda: float(sum(map(torch.cuda.memory_reserved, devices))),
            }
        )


async def serve(config: ServerConfig, models: Sequence[LoadedModel]) -> None:
    """Serves until SIGTERM or SIGINT, then drains; a second signal stops at once.

    Raises:
        AddressError: An address can't be listened on.
    """
    asked_to_stop, asked_twice = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (asked_twice if asked_to_stop.is_set() else asked_to_stop).set()

    # A time of creation for every series would double the scrape and tell nothing.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    sys.setswitchinterval(_SWITCH_SECONDS)
    event_loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        event_loop.add_signal_handler(number, on_signal)
    # What is there now stays. The collector would go through it, modules and weights, time and again while calls make garbage.
    # Three times Python's own 700: to go through so few takes a millisecond or two, which is as long as nothing is answered.
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 20, 50)
    app = App(config, models)
    await app.start()
    print(app.describe(), flush=True)
    log_event(logger, logging.INFO, app.describe())
    await asked_to_stop.wait()
    await app.stop(asked_twice)
