"""What the load of servers says in the end."""

import asyncio
import os

import pytest
from servers import RunningServer
from serving import Capacity, Target, capacities_table, capacity_bar

from dragoman_model.checkpoint import load_model
from tests.integration.servers import SENTENCES, serving
from tests.models import make_tiny_model


def capacity(server, rate):
    return Capacity(server, "int8", rate, rate / 2, 0.01, 0.02, 0.0345, 0.004)


def test_the_better_of_our_forms_is_compared_with_the_baseline():
    found = [
        capacity("dragoman", 90.0),
        capacity("dragoman, in a process", 120.0),
        capacity("ctranslate2", 100.0),
    ]
    bar = capacity_bar(found)
    assert bar.value == pytest.approx(1.2)
    assert bar.verdict == "must"


@pytest.mark.parametrize(
    "found", [[capacity("dragoman", 90.0)], [capacity("dragoman", 90.0), capacity("ctranslate2", 0.0)]]
)
def test_without_a_baseline_nothing_is_claimed(found):
    assert capacity_bar(found).verdict == "not measured"


def test_the_table_gives_milliseconds():
    row = capacities_table([capacity("dragoman", 90.0)]).splitlines()[-1]
    assert row == "| dragoman | int8 | 90.0/s | 45.0/s | 10.0 ms | 20.0 ms | 34.5 ms | 4.00 ms |"


async def test_a_real_server_is_loaded_and_its_processor_time_counted(tmp_path):
    model = load_model(make_tiny_model(tmp_path / "tiny"), device="cpu")
    async with serving(model) as server:
        target = Target(
            RunningServer("tiny", server.app.grpc_address, os.getpid(), "float32"), 1.0, SENTENCES
        )
        await asyncio.gather(*map(target.send, SENTENCES))
        found = await target.load(40.0, 0.5, 1, 60.0)
        await target.close()
    assert found.holds(60.0)
    assert len(found.latencies) == found.num_calls > 5
    assert found.cpu_seconds > 0
