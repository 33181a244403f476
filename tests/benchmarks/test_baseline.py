"""The server that ours is compared with batches as such servers do, so that the comparison is fair."""

import asyncio

import pytest

pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed: .[bench] has it")

from baseline import Batcher


class Translations:
    """Translates a sentence to itself and remembers the batches; the first waits until `release`."""

    def __init__(self, loop):
        self.batches = []
        self._loop = loop
        self._may_go = asyncio.Event()
        self.has_first = asyncio.Event()

    def __call__(self, sources):
        self.batches.append(list(sources))
        self._loop.call_soon_threadsafe(self.has_first.set)
        asyncio.run_coroutine_threadsafe(self._may_go.wait(), self._loop).result()
        return list(sources)

    def release(self):
        self._may_go.set()


@pytest.fixture
async def translations():
    return Translations(asyncio.get_running_loop())


@pytest.fixture
async def submit(translations):
    batcher = Batcher(translations, window=0.0, max_batch_size=4)
    task = asyncio.create_task(batcher.run())
    yield lambda *sources: asyncio.create_task(batcher.submit(sources))
    translations.release()
    task.cancel()


async def test_requests_that_come_while_a_batch_runs_share_the_next(translations, submit):
    first = submit("a")
    await translations.has_first.wait()
    others = [submit("b", "c"), submit("d"), submit("e", "f"), submit("g")]
    await asyncio.sleep(0)  # they are waiting now
    translations.release()
    assert await asyncio.gather(first, *others) == [["a"], ["b", "c"], ["d"], ["e", "f"], ["g"]]
    # A request is never cut in two; one more is taken as long as the batch isn't full.
    assert translations.batches == [["a"], ["b", "c", "d", "e", "f"], ["g"]]


async def test_a_request_whose_caller_left_is_not_translated(translations, submit):
    first = submit("a")
    await translations.has_first.wait()
    left, stayed = submit("b"), submit("c")
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.sleep(0)
    translations.release()
    assert await asyncio.gather(first, stayed) == [["a"], ["c"]]
    assert translations.batches == [["a"], ["c"]]
