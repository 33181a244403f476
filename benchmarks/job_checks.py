"""What must hold of a file that was translated in several runs, and of a stream that was not read for a while."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from file_job import Run
from known_lines import Comparison
from memory_growth import MAX_GROWTH, Growth, growth, growth_check, settled_growth
from reporting import Check
from stalled_reader import Stall

from dragoman_client.bulk import DEFAULT_MAX_PENDING
from dragoman_server.rpcs.translate_batch import MAX_ITEMS

# The bar's library (rich) remembers the widths of the 4,096 texts that it measured last: a megabyte, full after some three minutes.
BAR_SETTLING_SAMPLES = 200
# A run of fewer samples is too short to be judged.
MIN_JUDGED_SAMPLES = 300

ENDED_BY = {-signal.SIGKILL: "killed", 130: "interrupted", 0: "to the end"}


def job_checks(
    num_lines: int, runs: Sequence[Run], found: Comparison, num_translated: int, journal_left: bool
) -> list[Check]:
    """Returns the checks of a job.

    Args:
        num_lines: Of the input.
        runs: Of which the first was killed, the second interrupted, and the third came to the end.
        found: The output beside what was expected.
        num_translated: Sentences that the server translated.
        journal_left: Whether the journal lies beside the output.
    """
    ends = [run.exit_code for run in runs]
    in_engine = max((sample.in_engine for run in runs for sample in run.samples), default=0)
    # What was under way when the command ended had been translated in vain.
    max_twice = DEFAULT_MAX_PENDING * (len(runs) - 1)
    twice = num_translated - num_lines
    wrong = f"{found.num_wrong:,}, the first: {found.first_wrong}" if found.num_wrong else 0
    said, really = said_lines(runs[1].said), runs[1].end_lines
    server = settled_growth(
        [(sample.num_lines, sample.server_bytes) for run in runs for sample in run.samples]
    )
    return [
        Check("ends of the runs", ", ".join(ENDED_BY.get(end, str(end)) for end in ends), ends == list(ENDED_BY)),
        Check(f"lines of the output, of {num_lines:,}", f"{found.num_lines:,}", found.num_lines == num_lines),
        Check("lines that are not what they must be", wrong, not found.num_wrong),
        Check("lines that the interrupted run says are done, and that are", f"{said} and {really}", said == really),
        Check(f"sentences translated in vain (at most {max_twice:,})", twice, 0 <= twice <= max_twice),
        Check("the journal of the finished job is gone", not journal_left, not journal_left),
        Check(f"items of the stream in the engine, at most ({MAX_ITEMS})", in_engine, 0 < in_engine <= MAX_ITEMS),
        growth_check("the server's memory, growth after the first tenth", server),
        *(
            growth_check(f"the command's, {ENDED_BY.get(run.exit_code, '?')}, from when its bar has settled", settled_command(run))
            for run in runs
            if len(run.samples) >= MIN_JUDGED_SAMPLES
        ),
    ]  # fmt: skip


def settled_command(run: Run) -> Growth:
    """Returns the growth of a command after the first tenth of its run, and after its bar's library has found its size."""
    samples = run.samples[max(BAR_SETTLING_SAMPLES, len(run.samples) // 10) :]
    return growth([(sample.num_lines, sample.command_bytes) for sample in samples])


def stall_checks(stalled: Stall) -> list[Check]:
    """Returns the checks of a stream whose caller did not read for a while."""
    seconds, too_many = len(stalled.full) - 1, stalled.num_too_many
    in_engine, peak, read = stalled.max_in_engine, stalled.peak_ratio, stalled.read_afterwards
    owed = stalled.full[-1].translated - stalled.before.translated
    return [
        Check(f"a stream that nobody reads: sentences translated in {seconds} s", too_many, too_many == 0),
        Check(f"items of it in the engine, at most ({MAX_ITEMS})", in_engine, in_engine <= MAX_ITEMS),
        Check(f"memory meanwhile / before (at most {MAX_GROWTH})", f"{peak:.4f}", peak <= MAX_GROWTH),
        Check(f"results that come when it is read again, of {owed:,}", f"{read:,}", read >= owed),
    ]


def job_figures(runs: Sequence[Run]) -> dict[str, float]:
    """Returns how fast the job was, and the most memory that it took."""
    samples = [sample for run in runs for sample in run.samples]
    num_lines, seconds = runs[-1].end_lines, sum(run.seconds for run in runs)
    return {
        "seconds": round(seconds, 1),
        "lines a second": round(num_lines / seconds, 1),
        "server, CPU ms a line": round(sum(run.server_cpu_seconds for run in runs) / num_lines * 1000, 3),
        "command, CPU ms a line": round(sum(run.cpu_seconds for run in runs) / num_lines * 1000, 3),
        "server, peak MB": round(max((sample.server_bytes for sample in samples), default=0) / 1e6, 1),
        "command, peak MB": round(max((sample.command_bytes for sample in samples), default=0) / 1e6, 1),
    }


def said_lines(said: str) -> int | None:
    """Returns how many lines an interrupted command says are done; None where it says nothing of it."""
    matches = re.findall(r"Interrupted; ([\d,]+) lines are done", said)
    return int(matches[-1].replace(",", "")) if matches else None
