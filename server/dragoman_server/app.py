"""Puts the server together, runs it, and takes it down again."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import grpc
import torch
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from prometheus_client import disable_created_metrics

from dragoman.v1 import add_TranslationServiceServicer_to_server
from dragoman_model.checkpoint import LoadedModel
from dragoman_server import event_loop
from dragoman_server.catalogue import Catalogue
from dragoman_server.config import ServerConfig, split_address
from dragoman_server.cpus import available_cpus, default_num_threads
from dragoman_server.doorway import Doorway
from dragoman_server.engine import JOIN_SECONDS
from dragoman_server.engine_setup import join_all, set_up_engine
from dragoman_server.errors import DrainingError, StartError
from dragoman_server.grpc_server import bind, build_grpc_server
from dragoman_server.health import SERVICE_NAME, Health
from dragoman_server.interceptors import CallInterceptor
from dragoman_server.limits import CallLimits
from dragoman_server.logs import log_event
from dragoman_server.merged_registry import MergedRegistry
from dragoman_server.metrics import Metrics
from dragoman_server.monitoring import MonitoringServer
from dragoman_server.service import TranslationService

logger = logging.getLogger(__name__)

# How long the event loop may keep the interpreter from an engine's thread, which asks for it after each kernel. Python's own
# 5 ms are as long as a step, and the batch would stand still as often as calls are refused meanwhile.
_SWITCH_SECONDS = 0.001
# Answers that are already made get this long to leave after the engines stopped.
_FLUSH_SECONDS = 1.0


class App:
    """A server with its models, from start to stop, which both happen on one event loop.

    Args:
        config: How to serve.
        models: What to serve, as `loading.load_models` returns it.
    """

    def __init__(self, config: ServerConfig, models: Sequence[LoadedModel]) -> None:
        self._config = config
        self.registry = MergedRegistry()
        metrics = Metrics(self.registry)
        metrics.observe_process()
        _observe_devices(metrics, models)
        num_threads = config.threads or default_num_threads(len(models), available_cpus())
        self._catalogue = Catalogue(
            [
                set_up_engine(
                    model,
                    config,
                    metrics,
                    self.registry,
                    num_threads=num_threads,
                    on_failure=self._on_engine_failure,
                )
                for model in models
            ]
        )
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
        self._server = build_grpc_server(
            self._config, (self._doorway, self.interceptor), len(self._catalogue.models)
        )
        self._add_services(self._server)
        self.grpc_address = bind(self._server, self._config.listen)
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
        engines = [served.engine for served in self._catalogue.models]
        for engine in engines:
            engine.stop(DrainingError())
        # In another thread, so that the answers that are made leave meanwhile.
        ending = asyncio.to_thread(join_all, engines, JOIN_SECONDS)
        await asyncio.gather(self._server.stop(_FLUSH_SECONDS), ending)
        if self._monitoring is not None:
            self._monitoring.stop()
        log_event(logger, logging.INFO, "stopped", all_calls_ended=was_idle)

    def describe(self) -> dict[str, str]:
        """Returns where and what is served, each by its name."""
        models = [served.model for served in self._catalogue.models]
        return {
            "grpc": self.grpc_address,
            "http": self.http_address,
            "model": ",".join(model.name for model in models),
            "device": ",".join(dict.fromkeys(str(model.device) for model in models)),
            "precision": ",".join(dict.fromkeys(model.precision for model in models)),
        }

    def _on_engine_failure(self) -> None:
        self._refreshing = asyncio.ensure_future(self.health.refresh())

    def _add_services(self, server: grpc.aio.Server) -> None:
        self.service = TranslationService(self._catalogue, _call_limits(self._config))
        add_TranslationServiceServicer_to_server(self.service, server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health.servicer, server)
        reflection.enable_server_reflection(
            (SERVICE_NAME, "grpc.health.v1.Health", reflection.SERVICE_NAME), server
        )

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


def _call_limits(config: ServerConfig) -> CallLimits:
    # What doesn't fit the batch could wait for ever.
    max_sentence_rows = min(config.max_sentence_rows, config.max_batch_size)
    return CallLimits(
        max_text_count=config.max_text_count,
        max_text_characters=config.max_text_characters,
        max_beam_size=min(config.max_beam_size, max_sentence_rows),
        max_num_hypotheses=min(config.max_num_hypotheses, max_sentence_rows),
        max_sentence_rows=max_sentence_rows,
        max_batch_size=config.max_batch_size,
        max_queue_size=config.max_queue_size,
        max_queue_seconds=config.max_queue_seconds,
        max_bulk_streams=config.max_bulk_streams,
        max_attention_calls=config.max_attention_calls,
    )


def _observe_devices(metrics: Metrics, models: Sequence[LoadedModel]) -> None:
    devices = {model.device for model in models if model.device.type == "cuda"}
    if devices:
        metrics.observe_device_memory(
            {
                "allocated": lambda: float(sum(map(torch.cuda.memory_allocated, devices))),
                "reserved": lambda: float(sum(map(torch.cuda.memory_reserved, devices))),
            }
        )


def serve(config: ServerConfig, models: Sequence[LoadedModel]) -> None:
    """Serves until SIGTERM or SIGINT, then drains; a second signal stops at once.

    Raises:
        AddressError: An address can't be listened on.
    """
    # A time of creation for every series would double the scrape and tell nothing.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    sys.setswitchinterval(_SWITCH_SECONDS)
    # What is there now stays. The collector would go through it, modules and weights, time and again while calls make garbage.
    # Three times Python's own 700: to go through so few takes a millisecond or two, which is as long as nothing is answered.
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 20, 50)
    # Engines' processes are forked here, before there is an event loop that they would have a half of.
    app = App(config, models)
    event_loop.run(_serve(app))


async def _serve(app: App) -> None:
    asked_to_stop, asked_twice = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (asked_twice if asked_to_stop.is_set() else asked_to_stop).set()

    running_loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        running_loop.add_signal_handler(number, on_signal)
    await app.start()
    served = app.describe()
    try:
        print("serving", *(f"{name}={value}" for name, value in served.items()), flush=True)
    except OSError as error:
        # What could not be written is still in the stream, and at its end Python would try once more and exit with 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        await app.stop()
        raise StartError(f"can't write to standard output: {error.strerror or error}") from error
    log_event(logger, logging.INFO, "serving", **served)
    await asked_to_stop.wait()
    await app.stop(asked_twice)
    # All is done. One signal more while the interpreter takes itself down must not make a failure of it.
    for number in (signal.SIGTERM, signal.SIGINT):
        running_loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
