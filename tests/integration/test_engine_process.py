"""An engine in a process of its own, beside one in a thread of the server: nobody can tell them apart, until one dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dragoman.v1 import (
    BatchItem,
    DumpAttentionRequest,
    ScoreTextRequest,
    StreamTranslateTextRequest,
    TranslateBatchRequest,
    TranslateTextRequest,
)
from dragoman_server.cpus import available_cpus
from tests.integration.processes import COMMAND, ENVIRONMENT, Server, started, until
from tests.integration.servers import SENTENCES
from tests.models import make_tiny_model

LONG = {"min_decoding_length": 255}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "en-de")


@pytest.fixture(scope="module")
def in_thread(model: Path) -> Iterator[Server]:
    with started(model, "--engine", "thread") as (process, said):
        yield Server(process, said)


@pytest.fixture(scope="module")
def in_process(model: Path) -> Iterator[Server]:
    with started(model, "--engine", "process") as (process, said):
        yield Server(process, said)


@pytest.fixture
def own(model: Path) -> Iterator[Server]:
    """One that a test may break: with a batch of one row and a queue of two places."""
    with started(model, "--engine", "process", "--max-batch-size", "1", "--max-queue-size", "2",
                 "--grace-seconds", "20") as (process, said):  # fmt: skip
        yield Server(process, said)


def occupied(server: Server) -> Any:
    """Returns a bulk call that keeps a row busy for longer than any test looks at it."""
    items = [BatchItem(id=str(number), text=SENTENCES[0]) for number in range(250)]
    call = server.stub.TranslateBatch(iter([TranslateBatchRequest(items=items, options=LONG)]), timeout=60)
    until(lambda: server.value("dragoman_running_rows") == 1)
    return call


@pytest.mark.parametrize("num_cpus", [1, 2])
def test_by_itself_an_engine_is_a_process_only_where_a_cpu_is_left_for_it(model: Path, num_cpus: int):
    all_cpus = os.sched_getaffinity(0)
    if available_cpus() < num_cpus:
        pytest.skip(f"needs {num_cpus} CPUs")
    os.sched_setaffinity(0, set(sorted(all_cpus)[:num_cpus]))
    try:
        with started(model) as (process, said):
            assert len(Server(process, said).engines()) == num_cpus - 1
    finally:
        os.sched_setaffinity(0, all_cpus)


def messages(stream: Any) -> list[bytes]:
    return [message.SerializeToString(deterministic=True) for message in stream]


def test_it_answers_every_rpc_as_a_thread_does(in_thread: Server, in_process: Server):
    for options in ({}, {"beam_size": 4, "num_hypotheses": 2}, {"sampling_topk": 5, "seed": 3}):
        output = {"include_alignments": True, "include_tokens": True}
        request = TranslateTextRequest(texts=SENTENCES, options=options, output=output)
        assert in_process.stub.TranslateText(request) == in_thread.stub.TranslateText(request)
    scored = ScoreTextRequest(items=[{"text": SENTENCES[0], "translation": "Hallo"}])
    assert in_process.stub.ScoreText(scored) == in_thread.stub.ScoreText(scored)
    dumped = DumpAttentionRequest(text=" ".join(SENTENCES))
    assert messages(in_process.stub.DumpAttention(dumped)) == messages(in_thread.stub.DumpAttention(dumped))


def test_a_stream_says_the_same_as_the_whole(in_process: Server):
    text = " ".join(SENTENCES)
    events = list(in_process.stub.StreamTranslateText(StreamTranslateTextRequest(text=text)))
    deltas = [event.delta.text for event in events if event.WhichOneof("event") == "delta"]
    (whole,) = in_process.stub.TranslateText(TranslateTextRequest(texts=[text])).translations
    assert len(deltas) > 1
    assert "".join(deltas) == whole.text == events[-1].result.translations[0].text


def test_bulk_has_a_result_for_every_item(in_process: Server):
    items = [BatchItem(id=str(number), text=SENTENCES[number % 5]) for number in range(600)]
    requests = (TranslateBatchRequest(items=items[start : start + 50]) for start in range(0, 600, 50))
    results = [result for response in in_process.stub.TranslateBatch(requests) for result in response.results]
    whole = in_process.stub.TranslateText(TranslateTextRequest(texts=SENTENCES)).translations
    assert sorted(int(result.id) for result in results) == list(range(600))
    assert all(result.translation.text == whole[int(result.id) % 5].text for result in results)


def test_what_both_processes_count_is_added_up(in_process: Server):
    ended = in_process.value("dragoman_sentences_total", 'finish_reason="eos"')
    ended += in_process.value("dragoman_sentences_total", 'finish_reason="length"')
    blank = in_process.value("dragoman_sentences_total", 'finish_reason="blank"')
    cpu = in_process.value("process_cpu_seconds_total")
    in_process.stub.TranslateText(TranslateTextRequest(texts=[*SENTENCES, " "]))
    now = in_process.value("dragoman_sentences_total", 'finish_reason="eos"')
    now += in_process.value("dragoman_sentences_total", 'finish_reason="length"')
    assert now == ended + 5  # by the engine
    assert in_process.value("dragoman_sentences_total", 'finish_reason="blank"') == blank + 1  # by the server
    assert in_process.value("dragoman_row_slots") == 64
    started_ago = time.time() - in_process.value("process_start_time_seconds")
    assert 0 < started_ago < 600
    until(lambda: in_process.value("process_cpu_seconds_total") > cpu)


def test_the_event_loop_comes_before_the_model_where_cpus_are_scarce(in_process: Server):
    (engine,) = in_process.engines()
    of_server = os.getpriority(os.PRIO_PROCESS, in_process.process.pid)
    assert os.getpriority(os.PRIO_PROCESS, engine) > of_server


def test_a_full_queue_refuses_and_says_when_to_come_back(own: Server):
    (engine,) = own.engines()
    os.kill(engine, signal.SIGSTOP)  # so that the queue stays full
    texts = TranslateTextRequest(texts=SENTENCES[:1], options=LONG)
    calls = [own.stub.TranslateText.future(texts, timeout=60) for _ in range(3)]
    until(lambda: any(call.done() for call in calls))
    (refused,) = (call for call in calls if call.done())
    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    trailers = dict(refused.trailing_metadata())
    details = status_pb2.Status.FromString(trailers["grpc-status-details-bin"]).details
    assert any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in details)
    os.kill(engine, signal.SIGCONT)
    assert all(call.result().translations for call in calls if call is not refused)


def test_a_call_that_is_cancelled_holds_nothing(own: Server):
    calls = [occupied(own)]
    calls += [
        own.stub.TranslateText.future(TranslateTextRequest(texts=SENTENCES[:1], options=LONG), timeout=60)
        for _ in range(2)
    ]
    for call in calls:
        call.cancel()
    until(lambda: own.value("dragoman_running_rows") + own.value("dragoman_waiting_requests") == 0)
    assert own.stub.TranslateText(TranslateTextRequest(texts=["a"]), timeout=10).translations


def test_a_deadline_that_passes_ends_the_call_in_time(own: Server):
    request = TranslateTextRequest(texts=SENTENCES[:1], options=LONG)
    ended = [own.stub.TranslateText.future(request, timeout=0.03).code() for _ in range(20)]
    assert grpc.StatusCode.DEADLINE_EXCEEDED in ended
    until(lambda: own.value("dragoman_running_rows") == 0)


def test_an_engine_that_dies_fails_its_calls_and_turns_the_checks_red(own: Server):
    (engine,) = own.engines()
    assert own.code("/healthz") == 200
    bulk = occupied(own)
    os.kill(engine, signal.SIGKILL)
    results = [result for response in bulk for result in response.results]
    assert len(results) == 250
    codes = Counter(result.error.code for result in results if result.HasField("error"))
    assert set(codes) == {grpc.StatusCode.INTERNAL.value[0], grpc.StatusCode.UNAVAILABLE.value[0]}
    assert codes[grpc.StatusCode.INTERNAL.value[0]] <= 4  # in the row, in both places, and waiting for one
    assert results[-1].error.code == grpc.StatusCode.UNAVAILABLE.value[0]
    with pytest.raises(grpc.RpcError) as later:
        own.stub.TranslateText(TranslateTextRequest(texts=["a"]), timeout=10)
    assert later.value.code() is grpc.StatusCode.UNAVAILABLE
    items = [BatchItem(id="1", text="a")]
    with pytest.raises(grpc.RpcError) as stream:
        list(own.stub.TranslateBatch(iter([TranslateBatchRequest(items=items)]), timeout=10))
    assert stream.value.code() is grpc.StatusCode.UNAVAILABLE
    assert own.value("dragoman_refused_total", 'reason="ENGINE_GONE"') == 2
    assert own.code("/healthz") == 503
    health = health_pb2_grpc.HealthStub(own.channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    assert health.status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert own.value("dragoman_row_slots") == 1  # its last figures are still told
    assert own.value("dragoman_engine_state", 'state="gone"') == 1
    own.process.send_signal(signal.SIGTERM)
    _, log = own.process.communicate(timeout=20)
    assert own.process.returncode == 0
    assert "engine process ended" in log


def test_an_engine_does_not_outlive_a_server_that_is_killed(own: Server):
    (engine,) = own.engines()
    own.process.kill()
    own.process.wait(timeout=10)
    until(lambda: not Path(f"/proc/{engine}").exists())


def test_a_server_that_drains_ends_its_engine_after_its_calls(own: Server):
    (engine,) = own.engines()
    running = own.stub.StreamTranslateText(
        StreamTranslateTextRequest(text=SENTENCES[0], options=LONG), timeout=60
    )
    assert next(running).delta.text
    own.process.send_signal(signal.SIGTERM)
    assert list(running)[-1].result.translations
    assert own.process.wait(timeout=20) == 0
    assert not Path(f"/proc/{engine}").exists()


def test_a_start_that_fails_after_the_fork_ends_with_its_reason(model: Path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    both = ("--engine", "process", "--model", str(model), "--listen", address, "--http", address)
    ended = subprocess.run([*COMMAND, *both], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert f"http: can't listen on {address}" in ended.stderr


STOPPED = """
import os, sys
from dragoman_server import app
from dragoman_server.__main__ import main

class Stopped(app.App):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        print(self._catalogue.models[0].engine._process.pid, flush=True)
        os.kill(os.getpid(), number)

number = int(sys.argv.pop(1))
app.App = Stopped
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_stopped_before_it_serves_leaves_no_engine_behind(
    model: Path, number: signal.Signals
):
    start = [sys.executable, "-c", STOPPED, str(int(number)), "--engine", "process", "--model", str(model),
             "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]  # fmt: skip
    ended = subprocess.run(start, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, timeout=30)
    assert ended.returncode == -number
    until(lambda: not Path(f"/proc/{int(ended.stdout)}").exists())


def test_each_of_several_engines_ends_by_itself_and_fails_alone(model: Path, tmp_path: Path):
    other = make_tiny_model(tmp_path / "other", seed=8)
    with started(model, "--engine", "process", "--model", str(other)) as (process, said):
        server = Server(process, said)
        engines = server.engines()
        assert len(engines) == 2
        health = health_pb2_grpc.HealthStub(server.channel)
        watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=60)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        os.kill(engines[1], signal.SIGKILL)
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
        assert server.code("/healthz") == 503
        request = TranslateTextRequest(texts=SENTENCES)
        codes = []
        for name in (model.name, other.name):
            request.model = name
            codes.append(server.stub.TranslateText.future(request, timeout=10).code())
        assert sorted(codes, key=str) == [grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


def test_scrapes_of_an_engine_that_hangs_have_its_last_figures(own: Server):
    (engine,) = own.engines()
    until(lambda: own.value("dragoman_row_slots") == 1)  # from when the process has made its engine
    os.kill(engine, signal.SIGSTOP)
    assert own.value("dragoman_row_slots") == 1
    os.kill(engine, signal.SIGCONT)
    until(lambda: own.value("dragoman_row_slots") == 1)


def test_calls_that_fill_the_queue_fail_when_the_engine_dies_and_later_ones_are_refused(own: Server):
    (engine,) = own.engines()
    request = TranslateTextRequest(texts=SENTENCES[:1], options=LONG)
    os.kill(engine, signal.SIGSTOP)
    calls = [own.stub.TranslateText.future(request, timeout=60) for _ in range(3)]
    until(lambda: any(call.done() for call in calls))
    os.kill(engine, signal.SIGKILL)
    codes = [call.code() for call in calls]
    assert sorted(codes, key=str) == [grpc.StatusCode.INTERNAL] * 2 + [grpc.StatusCode.RESOURCE_EXHAUSTED]
    assert own.stub.TranslateText.future(request, timeout=10).code() is grpc.StatusCode.UNAVAILABLE
