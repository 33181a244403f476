"""Beams, n-best lists, samples and prefixes over the wire, from the real server with a tiny model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import pytest

from dragoman.v1 import FinishReason, ListModelsRequest, TranslateTextRequest, Translation
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.options import DecodingOptions
from dragoman_model.translator import Translator
from dragoman_server.rpcs import translate_text, work
from tests.integration.servers import RunningServer, refusal, serving

TEXTS = [
    "A girl is reading a book in the garden.",
    "He sings! Where is the red house with the 12 trees?",
    "  ",
    "I don't know",
]


@pytest.fixture
async def server(model: LoadedModel) -> AsyncIterator[RunningServer]:
    async with serving(model, http="") as server:
        yield server


async def translate(
    server: RunningServer, texts: list[str], options: dict[str, Any] | None = None, **fields: Any
) -> list[Translation]:
    response = await server.stub.TranslateText(TranslateTextRequest(texts=texts, options=options, **fields))
    return list(response.translations)


async def test_beams_find_what_the_model_alone_finds(server: RunningServer, model: LoadedModel):
    found = await translate(server, TEXTS, {"beam_size": 4, "num_hypotheses": 3, "length_penalty": 0.5})
    options = DecodingOptions(beam_size=4, num_hypotheses=3, length_penalty=0.5)
    for ours, alone in zip(found, Translator(model).translate(TEXTS, options=options), strict=True):
        assert ours.text == alone.text
        assert [other.text for other in ours.alternatives] == [other.text for other in alone.alternatives]
        assert [other.score for other in ours.alternatives] == pytest.approx(
            [other.score for other in alone.alternatives], abs=1e-4
        )
        assert not any(other.tokens for other in ours.alternatives)


async def test_the_first_alternative_is_the_translation(server: RunningServer):
    found = await translate(
        server, TEXTS, {"beam_size": 4, "num_hypotheses": 4}, output={"include_tokens": True}
    )
    assert [len(translation.alternatives) for translation in found] == [4, 4, 0, 4]
    for translation in found:
        if translation.finish_reason == FinishReason.FINISH_REASON_BLANK:
            continue
        best = translation.alternatives[0]
        for name in ("text", "finish_reason", "score", "normalized_score", "target_token_count"):
            assert getattr(best, name) == getattr(translation, name)
        assert list(best.tokens) == list(translation.tokens)
        for other in translation.alternatives:
            assert sum(token.log_probability for token in other.tokens) == pytest.approx(
                other.score, abs=1e-4
            )
            assert len(other.tokens) == other.target_token_count
    single = [t for t in found if t.sentence_count == 1]
    for translation in single:
        ranks = [other.normalized_score for other in translation.alternatives]
        assert ranks == sorted(ranks, reverse=True)


async def test_asking_for_more_never_changes_the_translation(server: RunningServer):
    plain = await translate(server, TEXTS, {"beam_size": 4})
    more = await translate(
        server, TEXTS, {"beam_size": 4, "num_hypotheses": 4}, output={"include_tokens": True}
    )
    assert [t.text for t in plain] == [t.text for t in more]
    assert not any(t.alternatives or t.tokens or t.HasField("seed") for t in plain)


async def test_one_beam_is_greedy_search(server: RunningServer):
    one, greedy = await translate(server, TEXTS, {"beam_size": 1}), await translate(server, TEXTS)
    assert [t.text for t in one] == [t.text for t in greedy]


async def test_a_drawn_seed_is_told_and_repeats(server: RunningServer):
    sampling = {"sampling_topk": 0, "num_hypotheses": 3}
    drawn = await translate(server, TEXTS, sampling)
    assert [t.HasField("seed") for t in drawn] == [True, True, False, True]
    assert len({t.seed for t in drawn if t.HasField("seed")}) == 1
    seed = drawn[0].seed
    # Alone, and beside others.
    for index in (0, 1, 3):
        (again,) = await translate(server, [TEXTS[index]], {**sampling, "seed": seed})
        assert [other.text for other in again.alternatives] == [o.text for o in drawn[index].alternatives]
        assert again.seed == seed
    other = await translate(server, TEXTS, {**sampling, "seed": seed + 1})
    assert [t.text for t in other] != [t.text for t in drawn]


async def test_calls_of_all_kinds_run_beside_each_other_and_disturb_none(server: RunningServer):
    kinds: list[dict[str, Any]] = [
        {},
        {"beam_size": 4, "num_hypotheses": 2},
        {"beam_size": 8, "no_repeat_ngram_size": 2},
        {"beam_size": 2, "repetition_penalty": 1.5, "length_penalty": -1},
        {"sampling_topk": 5, "seed": 3},
        {"sampling_topk": 0, "seed": 4, "num_hypotheses": 8, "sampling_topp": 0.9},
    ]
    alone = [await translate(server, TEXTS, options) for options in kinds]
    calls = [translate(server, TEXTS, options) for _ in range(3) for options in kinds]
    together = await asyncio.gather(*calls)
    for index, found in enumerate(together):
        for ours, expected in zip(found, alone[index % len(kinds)], strict=True):
            assert ours.text == expected.text
            assert [o.text for o in ours.alternatives] == [o.text for o in expected.alternatives]


@pytest.mark.parametrize("beam_size", [1, 4])
async def test_translations_start_with_their_prefixes(
    server: RunningServer, model: LoadedModel, beam_size: int
):
    prefixes = ["Das Haus", "Ein Hund", "Der", ""]
    options = {"beam_size": beam_size}
    forced = await translate(server, TEXTS, options, target_prefixes=prefixes)
    free = await translate(server, TEXTS, options)
    # Of several sentences the first alone has the prefix.
    alone = Translator(model).translate(
        TEXTS, options=DecodingOptions(beam_size=beam_size), target_prefixes=prefixes
    )
    assert [t.text for t in forced] == [t.text for t in alone]
    for translation, prefix in zip(forced[:2], prefixes, strict=False):
        assert translation.text.startswith(prefix)
    assert [t.text for t in forced[2:]] == [t.text for t in free[2:]]


@pytest.mark.parametrize(
    ("prefix", "written"),
    [("Die ﬁnden", "Die finden"), ("das \u00a0\tHaus", "das Haus"), ("Ein ½", "Ein 1⁄2")],
)
async def test_a_prefix_is_written_in_the_characters_that_the_model_writes(
    server: RunningServer, prefix: str, written: str
):
    (translation,) = await translate(server, TEXTS[:1], {"keep_numbers": False}, target_prefixes=[prefix])
    assert translation.text.startswith(written)


async def test_long_prefixes_and_many_hypotheses_keep_no_other_call_waiting(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
):
    threads: dict[str, threading.Thread] = {}

    def watch(module: ModuleType, name: str) -> None:
        function = getattr(module, name)

        def watched(*arguments: Any, **keywords: Any) -> Any:
            threads[name] = threading.current_thread()
            return function(*arguments, **keywords)

        monkeypatch.setattr(module, name, watched)

    watch(work, "prepare")
    watch(translate_text, "assemble_text")
    loop_thread = threading.current_thread()
    texts = ["A girl sings. " * 40]
    await translate(server, texts, {"max_decoding_length": 2})
    assert threads == {"prepare": loop_thread, "assemble_text": loop_thread}
    await translate(server, texts, {"max_decoding_length": 2, "beam_size": 8, "num_hypotheses": 8})
    assert threads["prepare"] is loop_thread
    assert threads["assemble_text"] is not loop_thread
    error = await refusal(translate(server, ["Hi"], target_prefixes=["Das " * 1200]))
    assert "target_prefixes[0]" in (error.details() or "")
    assert threads["prepare"] is not loop_thread


async def test_a_batch_narrower_than_the_limits_says_so_and_holds_to_it(model: LoadedModel):
    async with serving(model, http="", max_batch_size=3, max_num_hypotheses=2) as server:
        limits = (await server.stub.ListModels(ListModelsRequest())).limits
        assert (limits.max_beam_size, limits.max_num_hypotheses, limits.max_sentence_rows) == (3, 2, 3)
        found = await translate(server, TEXTS, {"beam_size": 3, "num_hypotheses": 2})
        assert len(found[0].alternatives) == 2
