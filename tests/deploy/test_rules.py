"""Each alert fires on what it is for, and on nothing milder."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.files import PROMETHEUS, RULES, alert_names

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool on this machine; Debian's package is `prometheus`"
)

SERVER = 'job="dragoman", instance="one:8080"'
MODEL = f'{SERVER}, model="en-de"'
OK = f'dragoman_requests_total{{{MODEL}, method="TranslateText", code="OK"}}'
INTERNAL = f'dragoman_requests_total{{{MODEL}, method="TranslateText", code="INTERNAL"}}'
INVALID = f'dragoman_requests_total{{{MODEL}, method="TranslateText", code="INVALID_ARGUMENT"}}'
REFUSED = f'dragoman_refused_total{{{SERVER}, reason="QUEUE_FULL"}}'
UNREACHABLE = f'dragoman_refused_total{{{SERVER}, reason="DEADLINE_UNREACHABLE"}}'
MISTAKEN = f'dragoman_refused_total{{{SERVER}, reason="INVALID_ARGUMENT"}}'
STARTED = f"process_start_time_seconds{{{SERVER}}}"
ROW_SLOTS = f"dragoman_row_slots{{{MODEL}}}"
QUEUE_SLOTS = f"dragoman_queue_slots{{{MODEL}}}"

Series = dict[str, str]


def up(values: str) -> Series:
    return {f"up{{{SERVER}}}": values}


def engine(in_state: str) -> Series:
    return {
        f'dragoman_engine_state{{{MODEL}, state="{state}"}}': f"{int(state == in_state)}x60"
        for state in ("running", "hung", "gone")
    }


def histogram(name: str, labels: str, **counts: int) -> Series:
    """What a minute adds to each bucket, by its bound; all lie below the last."""
    return {
        f'{name}_bucket{{{labels}, le="{bound}"}}': f"0+{count}x60"
        for bound, count in [
            *((le.removeprefix("le"), n) for le, n in counts.items()),
            ("+Inf", max(counts.values())),
        ]
    }


def latency(**counts: int) -> Series:
    return histogram("dragoman_request_seconds", f'{MODEL}, method="TranslateText"', **counts)


def queue_wait(**counts: int) -> Series:
    return histogram("dragoman_queue_wait_seconds", MODEL, **counts)


def rows(mean: int) -> Series:
    return {
        f"dragoman_step_rows_sum{{{MODEL}}}": f"0+{60 * mean}x60",
        f"dragoman_step_rows_count{{{MODEL}}}": "0+60x60",
        ROW_SLOTS: "64x60",
    }


def sentences(*, eos: int, length: int) -> Series:
    name = f"dragoman_sentences_total{{{MODEL}, finish_reason="
    return {f'{name}"eos"}}': f"0+{eos}x60", f'{name}"length"}}': f"0+{length}x60", OK: "0+60x60"}


def warned(*, repetition: int, uncovered: int) -> Series:
    name = f"dragoman_warnings_total{{{MODEL}, kind="
    return {
        f'{name}"repetition"}}': f"0+{repetition}x60",
        f'{name}"uncovered_source"}}': f"0+{uncovered}x60",
        **sentences(eos=100, length=0),
    }


def waiting(count: int) -> Series:
    return {f"dragoman_waiting_requests{{{MODEL}}}": f"{count}x60", QUEUE_SLOTS: "1024x60"}


# Alert: what makes it fire, and the next best thing that doesn't.
CASES: dict[str, tuple[Series, Series]] = {
    "DragomanDown": (up("0x60"), up("1x60")),
    "DragomanAbsent": ({'up{job="prometheus"}': "1x60"}, up("0x60")),
    "DragomanEngineNotRunning": (engine("hung"), engine("running")),
    "DragomanRestarting": ({STARTED: "1x34 2x4 3x4 4x60"}, {STARTED: "1x34 2x60"}),
    "DragomanFailing": (
        {OK: "0+54x60", INTERNAL: "0+6x60"},
        {OK: "0+58x60", INTERNAL: "0+2x60", INVALID: "0+20x60"},
    ),
    # Neither reason is frequent enough by itself.
    "DragomanRefusing": (
        {REFUSED: "0+4x60", UNREACHABLE: "0+4x60"},
        {REFUSED: "0+2x60", MISTAKEN: "0+60x60"},
    ),
    "DragomanSlow": (latency(le5=90, le10=100), latency(le5=100)),
    "DragomanQueueWait": (queue_wait(le1=90, le5=100), queue_wait(le1=100)),
    "DragomanQueueFilling": (waiting(900), waiting(600)),
    "DragomanSaturated": (rows(62), rows(40)),
    "DragomanCuttingSentences": (sentences(eos=80, length=20), sentences(eos=98, length=2)),
    # Attention is looked at where somebody asks for it, which may well be for odd translations.
    "DragomanSuspectTranslations": (
        warned(repetition=20, uncovered=0),
        warned(repetition=2, uncovered=50),
    ),
}


def count_firing(name: str, series: Series, tmp_path: Path) -> str:
    """What promtool says of a test in which the alert fires for one server within 45 minutes of this."""
    test = {
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{name}", alertstate="firing"}}) or vector(0)',
                "eval_time": "45m",
                "exp_samples": [{"labels": "{}", "value": 1}],
            }
        ],
    }
    file = tmp_path / "test.json"  # YAML holds JSON
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return "1"
    got = re.search(r"got:.*?Value:\s*(\d+)|got:.*?\b(\d+)E", done.stdout + done.stderr, re.DOTALL)
    assert got, done.stdout + done.stderr
    return got[1] or got[2]


def test_configuration_and_rules_are_valid():
    done = subprocess.run(
        ["promtool", "check", "config", str(PROMETHEUS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case():
    assert list(CASES) == alert_names()


@pytest.mark.parametrize("name", CASES)
def test_alert_fires_on_what_it_is_for_and_on_nothing_milder(name: str, tmp_path: Path):
    serious, mild = CASES[name]
    assert count_firing(name, serious, tmp_path) == "1"
    assert count_firing(name, mild, tmp_path) == "0"
