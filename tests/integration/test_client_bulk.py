"""Any number of texts from our client through our server, and what happens when either of them is killed."""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from dragoman_client import AsyncTranslator, DecodingOptions, InvalidRequestError, NotFoundError, Translator
from dragoman_model.checkpoint import LoadedModel
from tests.client.command_line import Dragoman, invoke
from tests.integration.servers import NASTY_LINES, SENTENCES, Addresses, RunningServer, running, serving
from tests.models import make_tiny_model

TEXTS = [*SENTENCES, "", "Two cats. One dog!", " \n"] * 6


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    with running(make_tiny_model(tmp_path_factory.mktemp("models") / "en-de")) as addresses:
        yield addresses


@pytest.fixture
def dragoman(addresses: Addresses, monkeypatch: pytest.MonkeyPatch) -> Dragoman:
    monkeypatch.setenv("DRAGOMAN_SERVER", addresses.grpc)
    return invoke


def test_texts_in_bulk_are_translated_as_in_a_call_of_their_own(addresses: Addresses) -> None:
    options = DecodingOptions(beam_size=2, num_hypotheses=2)
    prefixes = ["Das" if index % 3 else "" for index in range(len(TEXTS))]
    with Translator(addresses.grpc) as translator:
        expected = translator.translate(TEXTS, options=options, target_prefix=prefixes, include_tokens=True)
        results = list(
            translator.translate_batch(TEXTS, options=options, target_prefix=prefixes, include_tokens=True)
        )
        unordered = translator.translate_batch(TEXTS, options=options, target_prefix=prefixes, ordered=False)
        by_index = {result.index: result.unwrap().text for result in unordered}

    for result, translation in zip(results, expected, strict=True):
        made = result.unwrap()
        assert made.text == translation.text
        assert made.score == (
            None if translation.score is None else pytest.approx(translation.score, abs=1e-4)
        )
        assert [token.piece for token in made.tokens] == [token.piece for token in translation.tokens]
        assert [str(other) for other in made.alternatives] == [
            str(other) for other in translation.alternatives
        ]
    assert [by_index[index] for index in range(len(TEXTS))] == [str(translation) for translation in expected]


def test_texts_that_are_refused_have_errors_of_their_own_and_bad_options_fail_all(
    addresses: Addresses,
) -> None:
    with Translator(addresses.grpc) as translator:
        good, long, huge, also_good = translator.translate_batch(["Hi", "word " * 3000, "x" * 20_001, "Hi"])
        with pytest.raises(InvalidRequestError, match="beam_size"):
            list(translator.translate_batch(TEXTS, options=DecodingOptions(beam_size=99)))
        with pytest.raises(NotFoundError, match="fr-it"):
            list(translator.translate_batch(TEXTS, model="fr-it"))

    assert good.unwrap().text == also_good.unwrap().text
    assert isinstance(long.error, InvalidRequestError)
    assert "at most 256" in str(long.error)
    assert isinstance(huge.error, InvalidRequestError)
    assert huge.error.field_violations[0].field == "text"
    assert huge.error.request_id


async def test_server_that_is_started_anew_in_the_middle_loses_and_repeats_nothing(
    model: LoadedModel,
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    texts = [f"{number} {SENTENCES[number % 5]}" for number in range(400)]
    taken = 0

    async def counted() -> AsyncIterator[str]:
        nonlocal taken
        for text in texts:
            taken += 1
            yield text

    async with AsyncExitStack() as first, AsyncTranslator(address) as translator:
        server: RunningServer = await first.enter_async_context(serving(model, listen=address))
        results = translator.translate_batch(counted(), max_pending=64)
        made = [await anext(results) for _ in range(100)]
        assert server.value("dragoman_requests_total", method="TranslateBatch", model="en-de", code="OK") == 0
        await first.aclose()
        assert taken < 300
        async with serving(model, listen=address) as second:
            made += [result async for result in results]
            rest = second.value(
                "dragoman_sentences_total", model="en-de", finish_reason="eos"
            ) + second.value("dragoman_sentences_total", model="en-de", finish_reason="length")
            expected = await translator.translate(texts)

    assert [result.unwrap().text for result in made] == [translation.text for translation in expected]
    assert 0 < rest < 400


@pytest.mark.slow
def test_file_that_is_killed_at_random_moments_ends_as_if_nothing_had_happened(
    addresses: Addresses, dragoman: Dragoman, tmp_path: Path
) -> None:
    source, target, whole = tmp_path / "in", tmp_path / "out", tmp_path / "whole"
    lines = [line.replace("\n", " ") for line in NASTY_LINES] * 20
    source.write_bytes("\r\n".join(lines).encode() + b"\r\nbad \xff\r\n\r\nthe end")
    expected = dragoman("translate", "--input", str(source), "--output", str(whole))
    size = whole.stat().st_size
    path = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-m", "dragoman_client", "translate", "--resume", "--server", addresses.grpc]
    command += ["--input", str(source), "--output", str(target)]
    in_the_middle = 0

    for moment in sorted(random.Random(3).sample(range(1, size // 2), 3)):
        process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (target.exists() and target.stat().st_size >= moment):
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.002)
        process.send_signal(signal.SIGKILL)
        in_the_middle += process.wait(30) == -signal.SIGKILL and target.stat().st_size < size
    result = dragoman(*command[3:])

    assert in_the_middle > 0
    assert target.read_bytes() == whole.read_bytes()
    assert result.exit_code == expected.exit_code == 1
    assert result.stderr.splitlines()[-1] == expected.stderr.splitlines()[-1]
    assert not (tmp_path / "out.journal").exists()


def test_lines_pass_a_person_at_the_terminal_one_by_one(addresses: Addresses) -> None:
    async def talk() -> list[str]:
        typed: asyncio.Queue[str | None] = asyncio.Queue()

        async def keyboard() -> AsyncIterator[str]:
            while (line := await typed.get()) is not None:
                yield line

        answers = []
        async with AsyncTranslator(addresses.grpc) as translator:
            results = translator.translate_batch(keyboard())
            for sentence in SENTENCES:
                typed.put_nowait(sentence)
                answers.append((await anext(results)).unwrap().text)
            typed.put_nowait(None)
            assert [result async for result in results] == []
        return answers

    with Translator(addresses.grpc) as translator:
        assert asyncio.run(talk()) == [str(translation) for translation in translator.translate(SENTENCES)]


def test_scores_are_those_of_the_pairs_in_their_order(
    addresses: Addresses, dragoman: Dragoman, tmp_path: Path
) -> None:
    pairs = [(sentence, f"Ein Satz. {number}") for number, sentence in enumerate(SENTENCES * 20)]
    (tmp_path / "sources").write_text("\n".join(source for source, _ in pairs))
    (tmp_path / "translations").write_text("\n".join(translation for _, translation in pairs))
    with Translator(addresses.grpc) as translator:
        scores = translator.score(pairs)
        alone = [translator.score([pair])[0] for pair in pairs[:5]]
    printed = dragoman(
        "score", "--sources", str(tmp_path / "sources"), "--translations", str(tmp_path / "translations")
    )

    for score, single in zip(scores, alone):
        assert score.score == pytest.approx(single.score, abs=1e-4)
    for score in scores:
        assert score.score == pytest.approx(sum(token.log_probability for token in score.tokens), rel=1e-5)
        assert score.normalized_score == pytest.approx(score.score / len(score.tokens), rel=1e-5)
    assert [float(line.split("\t")[0]) for line in printed.lines] == pytest.approx(
        [score.score for score in scores], abs=1e-3
    )
