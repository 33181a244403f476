"""``python -m dragoman_server`` as an operator meets it: its output, its exit codes, its signals."""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import grpc
import pytest

from dragoman.v1 import TranslateTextRequest, TranslationServiceStub
from tests.integration.processes import COMMAND, ENVIRONMENT, started
from tests.models import make_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "en-de")


def test_it_serves_says_where_and_drains_on_sigterm(model: Path):
    with started(model, "--grace-seconds", "20", "--log-format", "json") as (process, said):
        assert (said["model"], said["device"], said["precision"]) == ("en-de", "cpu", "float32")
        with urllib.request.urlopen(f"http://{said['http']}/readyz", timeout=10) as response:
            assert response.status == 200
        with grpc.insecure_channel(said["grpc"]) as channel:
            stub = TranslationServiceStub(channel)
            stub.TranslateText(TranslateTextRequest(texts=["A secret sentence."]), timeout=10)
            long = TranslateTextRequest(texts=["He sings!"] * 64, options={"min_decoding_length": 255})
            running = stub.TranslateText.future(long, timeout=30)
            wait_for_running_rows(said["http"])
            process.send_signal(signal.SIGTERM)
            assert len(running.result().translations) == 64
        out, log = process.communicate(timeout=20)
    assert process.returncode == 0
    assert out == ""
    assert "secret" not in log
    assert '"event": "stopped", "all_calls_ended": true' in log
    events = [json.loads(line) for line in log.splitlines()]
    assert next(event for event in events if event["event"] == "serving")["grpc"] == said["grpc"]


def wait_for_running_rows(address: str) -> None:
    running = 0.0
    while running == 0:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
            lines = response.read().decode().splitlines()
        running = sum(float(line.split()[-1]) for line in lines if line.startswith("dragoman_running_rows{"))


def test_a_second_signal_stops_at_once(model: Path):
    with (
        started(model, "--grace-seconds", "600") as (process, said),
        grpc.insecure_channel(said["grpc"]) as channel,
    ):
        long = TranslateTextRequest(texts=["He sings!"] * 256, options={"min_decoding_length": 255})
        running = [TranslationServiceStub(channel).TranslateText.future(long, timeout=60) for _ in range(4)]
        wait_for_running_rows(said["http"])
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "draining" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert all(call.exception() is not None for call in running[1:])


# Sends itself a signal while it imports, from where errors are swallowed; it has main() left to do.
SIGNALLED_WHILE_IMPORTING = """
import os, signal, sys
class Swallowing:
    def find_spec(self, name, path=None, target=None):
        if name == "dragoman_server.command":
            try:
                os.kill(os.getpid(), {number})
            except BaseException:
                pass
            sys.exit("went on")
sys.meta_path.insert(0, Swallowing())
from dragoman_server.__main__ import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_starts_ends_it_without_a_word(number: signal.Signals):
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED_WHILE_IMPORTING.format(number=int(number))],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-number, "", "")


def test_signals_after_it_has_stopped_make_no_failure_of_it(model: Path):
    with started(model) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "stopped" not in process.stderr.readline():
            pass
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.01)
            process.send_signal(signal.SIGINT)
        assert process.returncode == 0


def test_it_serves_and_stops_with_its_standard_streams_closed(model: Path):
    command = [*COMMAND, "--model", str(model), "--listen", "127.0.0.1:0", "--http", "", "--engine", "thread"]
    with subprocess.Popen(
        ["/bin/sh", "-c", 'exec "$@" <&- >&-', "sh", *command],
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        while "serving" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
    assert process.returncode == 0
    assert log.endswith("stopped all_calls_ended=True\n")


def test_it_serves_and_stops_with_standard_error_closed(model: Path):
    command = [*COMMAND, "--model", str(model), "--listen", "127.0.0.1:0", "--http", "", "--engine", "thread"]
    with subprocess.Popen(
        ["/bin/sh", "-c", 'exec "$@" 2>&-', "sh", *command],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("serving ")
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "")


def test_standard_output_that_takes_nothing_is_one_line_and_exit_1(model: Path):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "--model", str(model), "--listen", "127.0.0.1:0", "--http", ""],
            # Which would leave nothing to be written at the end.
            env={name: value for name, value in ENVIRONMENT.items() if name != "PYTHONUNBUFFERED"},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    last = "dragoman-server: error: can't write to standard output: No space left on device\n"
    assert done.stderr.endswith(f"\n{last}")
    assert "Traceback" not in done.stderr


def failed(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    done = subprocess.run(
        [*COMMAND, *arguments],
        env={**ENVIRONMENT, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return done.returncode, line


def test_a_port_in_use_is_one_line_and_exit_1(model: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, line = failed("--model", str(model), "--listen", f"127.0.0.1:{port}")
    assert code == 1
    assert f"127.0.0.1:{port}: Address already in use; give another with --listen" in line


def test_a_bad_model_directory_is_one_line_and_exit_1(model: Path, tmp_path: Path):
    broken = tmp_path / "en-de"
    broken.mkdir()
    for file in model.iterdir():
        (broken / file.name).write_bytes(file.read_bytes()[:-1])
    code, line = failed("--model", str(broken), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    assert code == 1
    assert str(broken) in line


@pytest.mark.parametrize(
    ("arguments", "environment", "word"),
    [
        (["--threads", "many"], {}, "--threads"),
        ([], {"DRAGOMAN_CONFIG": "/no/such/file.toml"}, "/no/such/file.toml"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(arguments: list[str], environment: dict[str, str], word: str):
    code, line = failed(*arguments, environment=environment)
    assert code == 2
    assert word in line


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="this machine has a GPU")
def test_a_gpu_where_there_is_none_is_one_line_and_exit_1(model: Path):
    code, line = failed("--model", str(model), "--device", "cuda", "--listen", "127.0.0.1:0", "--http", "")
    assert code == 1
    assert "cuda" in line


def test_a_log_that_nobody_reads_keeps_no_caller_waiting(model: Path):
    with started(model) as (process, said), grpc.insecure_channel(said["grpc"]) as channel:
        assert process.stderr is not None
        fcntl.fcntl(process.stderr.fileno(), fcntl.F_SETPIPE_SZ, mmap.PAGESIZE)
        stub = TranslationServiceStub(channel)
        for _ in range(100):  # some 15 KB of log
            stub.TranslateText(TranslateTextRequest(texts=[" "]), timeout=10)
