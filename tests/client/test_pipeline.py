import asyncio
from collections.abc import AsyncGenerator, Iterator

import pytest

from dragoman_client import (
    FieldViolation,
    FinishReason,
    InvalidRequestError,
    OverloadedError,
    ServerError,
    Translation,
)
from dragoman_client.lines import LineError, Window
from dragoman_client.pipeline import MAX_OVERLOADED_TRIES, MAX_WINDOWS_UNDER_WAY, translate_windows


def windows_of(count: int) -> Iterator[Window]:
    for number in range(count):
        yield Window(first_line=1 + 2 * number, texts=[f"{number}a", f"{number}b"])


def translation_of(text: str) -> Translation:
    return Translation(text.upper(), FinishReason.EOS, -1.0, -0.5, 2, 2, 1, (), "en-de", "ab")


async def translate(texts: list[str]) -> list[Translation]:
    return [translation_of(text) for text in texts]


async def exhaust(results: AsyncGenerator[object]) -> None:
    async for _ in results:
        pass


async def test_windows_come_out_in_order_though_later_ones_end_first() -> None:
    second_is_done = asyncio.Event()

    async def translate_second_first(texts: list[str]) -> list[Translation]:
        if texts[0] == "0a":
            await second_is_done.wait()
        else:
            second_is_done.set()
        return await translate(texts)

    results = [
        [translation.text for translation in translations]
        async for _, translations in translate_windows(windows_of(4), translate_second_first)
    ]

    assert results == [[f"{n}A", f"{n}B"] for n in range(4)]


async def test_only_a_few_windows_are_in_memory() -> None:
    taken = 0

    def counted() -> Iterator[Window]:
        nonlocal taken
        for window in windows_of(50):
            taken += 1
            yield window

    done = 0
    async for _ in translate_windows(counted(), translate):
        done += 1
        # Under way, read ahead, waiting in the queue, waiting to be put there.
        assert taken <= done + MAX_WINDOWS_UNDER_WAY + 3
    assert done == 50


async def test_error_of_the_input_comes_after_what_preceded_it() -> None:
    def broken() -> Iterator[Window]:
        yield from windows_of(2)
        raise LineError("line 5 is not UTF-8")

    results = translate_windows(broken(), translate)

    assert [(await anext(results))[0].first_line for _ in range(2)] == [1, 3]
    with pytest.raises(LineError, match="line 5"):
        await anext(results)


async def test_refused_line_is_named_by_its_number() -> None:
    async def refuse(texts: list[str]) -> list[Translation]:
        if texts[0] == "1a":
            raise InvalidRequestError("texts[1]: 300 tokens, at most 256")
        return await translate(texts)

    with pytest.raises(
        InvalidRequestError, match=r"^line 4: 300 tokens, at most 256; lines 1 to 2 are done$"
    ):
        await exhaust(translate_windows(windows_of(3), refuse))


async def test_window_that_a_server_finds_too_large_goes_in_parts_and_names_its_lines() -> None:
    async def take_two(texts: list[str]) -> list[Translation]:
        if len(texts) > 2:
            violation = FieldViolation("texts", f"{len(texts)} texts given; 1 to 2 allowed")
            raise InvalidRequestError("texts: too many", field_violations=(violation,))
        if "bad" in texts:
            raise InvalidRequestError(f"texts[{texts.index('bad')}]: bad")
        return await translate(texts)

    results = translate_windows(iter([Window(1, list("abcdefg")), Window(8, ["h", "i", "bad"])]), take_two)

    assert [translation.text for translation in (await anext(results))[1]] == list("ABCDEFG")
    with pytest.raises(InvalidRequestError, match=r"^line 10: bad; lines 1 to 7 are done$"):
        await anext(results)


async def test_text_that_is_too_much_by_itself_is_refused() -> None:
    async def refuse(texts: list[str]) -> list[Translation]:
        raise InvalidRequestError(
            "texts: too many sentences", field_violations=(FieldViolation("texts", "x"),)
        )

    with pytest.raises(InvalidRequestError, match="too many sentences"):
        await exhaust(translate_windows(iter([Window(1, ["a"])]), refuse))


async def test_busy_server_is_asked_again() -> None:
    tries = 0

    async def overloaded_twice(texts: list[str]) -> list[Translation]:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OverloadedError("full", retry_after_seconds=0.001)
        return await translate(texts)

    assert len([item async for item in translate_windows(windows_of(1), overloaded_twice)]) == 1
    assert tries == 3


async def test_server_that_stays_busy_is_given_up() -> None:
    tries = 0

    async def overloaded(texts: list[str]) -> list[Translation]:
        nonlocal tries
        tries += 1
        raise OverloadedError("full", retry_after_seconds=0.0001)

    with pytest.raises(OverloadedError):
        await exhaust(translate_windows(windows_of(1), overloaded))
    assert tries == MAX_OVERLOADED_TRIES


async def test_failure_ends_everything_that_is_under_way(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(texts: list[str]) -> list[Translation]:
        raise ServerError(texts[0])

    with pytest.raises(ServerError, match="0a"):
        await exhaust(translate_windows(windows_of(9), fail))

    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert caplog.records == []
