"""A file translated in several runs: each thing that may go wrong is seen. And a run of the command, watched."""

import asyncio
import os
import signal
import sys
from dataclasses import replace

import pytest
import servers
from file_job import GrowingFile, Run, Sample, Stop, run_job
from job_checks import job_checks, job_figures, stall_checks
from known_lines import Comparison
from stalled_reader import Look, Stall, is_quiet

from dragoman_model.checkpoint import load_model
from dragoman_model.translator import Translator
from tests.integration.servers import SENTENCES, serving
from tests.models import make_tiny_model

FLAT = [(done, 300_000.0, 50_000.0, 256) for done in range(0, 1000, 2)]


def run(first, last, exit_code, said="", looks=FLAT):
    samples = [Sample(first + done, int(server), int(command), held) for done, server, command, held in looks]
    return Run(first, last, exit_code, 50.0, 0.5, 2.0, samples, said)


RUNS = [
    run(0, 1000, -9),
    run(1000, 2000, 130, "…\nInterrupted; 2,000 lines are done, go on with --resume"),
    run(2000, 4000, 0),
]
GOOD = {
    "num_lines": 4000,
    "runs": RUNS,
    "found": Comparison(4000),
    "num_translated": 4700,
    "journal_left": False,
}


def last_run_with(command_leak=0.0, server_leak=0.0, looks=FLAT):
    """Returns the runs, the last of them with so many bytes more a line."""
    grown = [
        (done, server + server_leak * done, command + command_leak * done, held)
        for done, server, command, held in looks
    ]
    return [RUNS[0], RUNS[1], run(2000, 4000, 0, looks=grown)]


def test_a_job_that_went_well_holds():
    assert all(check.holds for check in job_checks(**GOOD))


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ({"runs": [RUNS[0], replace(RUNS[1], exit_code=1), RUNS[2]]}, "ends of the runs"),
        ({"runs": [replace(RUNS[0], exit_code=0), RUNS[1], RUNS[2]]}, "ends of the runs"),
        ({"found": Comparison(3999)}, "lines of the output"),
        ({"found": Comparison(4000, 1, [(7, "a", "b")])}, "lines that are not what they must be"),
        ({"runs": [RUNS[0], replace(RUNS[1], end_lines=2001), RUNS[2]]}, "says are done"),
        ({"runs": [RUNS[0], replace(RUNS[1], said=""), RUNS[2]]}, "says are done"),
        ({"num_translated": 3999}, "translated in vain"),
        ({"num_translated": 4000 + 2 * 512 + 1}, "translated in vain"),
        ({"journal_left": True}, "journal"),
        ({"runs": last_run_with(looks=[*FLAT, (1000, 3e5, 5e4, 257)])}, "in the engine"),
        ({"runs": last_run_with(command_leak=2.0)}, "the command's, to the end"),
        ({"runs": last_run_with(server_leak=20.0)}, "the server's memory"),
    ],
)  # fmt: skip
def test_each_fault_is_seen_as_what_it_is(fault, what):
    (missed,) = [check for check in job_checks(**{**GOOD, **fault}) if not check.holds]
    assert what in missed.what


def test_what_the_bar_takes_in_its_first_minutes_is_no_growth_and_a_short_run_is_not_judged():
    bar = [(done, server, command + 100 * min(done, 390), held) for done, server, command, held in FLAT]
    for looks in (
        bar,
        [(done, server, command * (1 + done), held) for done, server, command, held in FLAT[:299]],
    ):
        assert all(check.holds for check in job_checks(**{**GOOD, "runs": last_run_with(looks=looks)}))


def test_figures_are_of_all_runs_together():
    figures = job_figures(last_run_with(server_leak=1000.0))
    assert figures["lines a second"] == pytest.approx(4000 / 150, abs=0.1)
    assert figures["server, CPU ms a line"] == pytest.approx(6000 / 4000)
    assert figures["server, peak MB"] == pytest.approx(1.3, abs=0.01)


QUIET = Stall(
    before=Look(1000, 200, 5000),
    filling=[Look(1004, 256, 6000), Look(1003, 256, 7000)],
    full=[Look(1003, 0, 7000)] * 4,
    read_afterwards=2000,
)


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ({}, None),
        ({"full": [*QUIET.full, Look(1003, 0, 7001)], "read_afterwards": 2001}, "in 4 s"),
        ({"filling": [Look(1004, 257, 6000)]}, "in the engine"),
        ({"filling": [Look(1021, 256, 6000)]}, "memory"),
        ({"read_afterwards": 1999}, "read again"),
    ],
)
def test_each_fault_of_a_stream_that_nobody_reads_is_seen(fault, what):
    missed = [check.what for check in stall_checks(replace(QUIET, **fault)) if not check.holds]
    assert len(missed) == (what is not None)
    assert all(what in one for one in missed)


def test_a_connection_is_full_when_nothing_was_translated_for_a_while():
    looks = [Look(1000, 256, translated) for translated in (10, 20, 30, 30, 30, 30, 30)]
    assert not is_quiet(looks)
    assert not is_quiet(looks[:3])
    assert is_quiet([*looks, looks[-1]])


def test_lines_that_are_complete_are_counted_once_whatever_is_cut_off(tmp_path):
    path = tmp_path / "out"
    lines = GrowingFile(path)
    assert lines.num_lines() == 0
    path.write_bytes(b"one\ntwo\nthr")
    assert lines.num_lines() == 2
    path.write_bytes(b"one\ntwo\nt\n\nfi")
    assert lines.num_lines() == 4
    with path.open("ab") as file:
        file.write(b"ve\n" + b"ab\n" * (1 << 19))
    assert lines.num_lines() == 5 + (1 << 19)


async def test_the_command_is_watched_and_ended_and_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    model = load_model(make_tiny_model(tmp_path / "tiny"), device="cpu")
    source, output, seen = tmp_path / "in", tmp_path / "out", []
    source.write_text("\n".join(SENTENCES * 40))
    async with serving(model) as app:
        server = servers.RunningServer(
            "tiny", app.app.grpc_address, os.getpid(), "float32", app.app.http_address or ""
        )

        def watch(resume, stop):
            return run_job(
                server, source, output, resume=resume, stop=stop, see=seen.append, interval_seconds=0.05
            )

        killed = await asyncio.to_thread(watch, False, Stop(0, signal.SIGKILL))
        done = await asyncio.to_thread(watch, True, None)
    assert (killed.exit_code, killed.samples, killed.end_lines) == (-signal.SIGKILL, [], 0)
    assert (done.exit_code, done.end_lines) == (0, 200)
    assert "100%" in done.said
    assert "200 lines" in done.said
    assert 0 < done.cpu_seconds < 60
    assert seen == done.samples
    assert all(sample.server_bytes > sample.command_bytes > 0 for sample in done.samples)
    expected = [made.text for made in Translator(model).translate(SENTENCES)] * 40
    assert output.read_text().splitlines() == expected
