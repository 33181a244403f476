import asyncio

from dragoman_server import event_loop


async def test_these_tests_run_on_the_loop_that_the_server_runs_on() -> None:
    served = event_loop.new_event_loop()
    served.close()
    assert type(asyncio.get_running_loop()) is type(served)
