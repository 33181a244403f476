"""Our client and its command line against our server: the same wire seen from both ends."""

import asyncio
import json
import urllib.request
from collections.abc import Iterator

import pytest

from dragoman_client import (
    AsyncTranslator,
    AttentionSelection,
    DecodingOptions,
    FinishReason,
    InvalidRequestError,
    NotFoundError,
    Score,
    ScoredToken,
    ScorePair,
    ServingStatus,
    Translation,
    Translator,
)
from tests.client.command_line import Dragoman, invoke
from tests.integration.servers import NASTY_LINES, Addresses, running
from tests.models import make_tiny_model

TEXTS = ["A girl reads a book.", "", "Two cats. One dog!", "  \n ", "42 houses"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    with running(make_tiny_model(tmp_path_factory.mktemp("models") / "en-de")) as addresses:
        yield addresses


@pytest.fixture
def dragoman(server: Addresses, monkeypatch: pytest.MonkeyPatch) -> Dragoman:
    monkeypatch.setenv("DRAGOMAN_SERVER", server.grpc)
    monkeypatch.setenv("DRAGOMAN_HTTP", server.http)
    return invoke


def test_texts_come_back_in_order_with_what_was_measured(server: Addresses) -> None:
    with Translator(server.grpc) as translator:
        translations = translator.translate(TEXTS, include_tokens=True)

    reasons = [translation.finish_reason for translation in translations]
    assert [reason is FinishReason.BLANK for reason in reasons] == [False, True, False, True, False]
    assert [translations[1].text, translations[3].text] == ["", "  \n "]
    assert [translation.sentence_count for translation in translations] == [1, 0, 2, 0, 1]
    for translation in translations:
        if translation.score is not None:
            assert translation.score == pytest.approx(
                sum(token.log_probability for token in translation.tokens), rel=1e-4
            )
            assert len(translation.tokens) == translation.target_token_count


def test_a_translations_tokens_get_its_own_score_again(server: Addresses) -> None:
    texts = [text for text in TEXTS if text.strip()]
    options = DecodingOptions(sampling_topk=0, num_hypotheses=2, seed=5, max_decoding_length=12)

    async def score(pairs: list[ScorePair]) -> list[Score]:
        async with AsyncTranslator(server.grpc) as translator:
            return await translator.score(pairs)

    with Translator(server.grpc) as translator:
        made = translator.translate(texts, options=options, split="none", include_tokens=True)
        hypotheses = [(text, one) for text, each in zip(texts, made) for one in each.alternatives]
        pairs: list[ScorePair] = [(text, one.tokens) for text, one in hypotheses]
        blocking = translator.score(pairs)

    for scores in (blocking, asyncio.run(score(pairs))):
        assert [one.score for one in scores] == pytest.approx([one.score for _, one in hypotheses], abs=1e-4)
        assert [[token.span for token in one.tokens] for one in scores] == [
            [token.span for token in one.tokens] for _, one in hypotheses
        ]


def test_tokens_of_several_sentences_are_refused(server: Addresses) -> None:
    options = DecodingOptions(max_decoding_length=4)
    with Translator(server.grpc) as translator:
        [one] = translator.translate(["He sings!"], options=options, include_tokens=True)
        end = ScoredToken("</s>", -0.1, None)
        with pytest.raises(InvalidRequestError, match="one sentence") as refused:
            translator.score([("a", "b"), ("He sings! He sings!", [end, *one.tokens])])

    assert [violation.field for violation in refused.value.field_violations] == ["items[1].pieces[0]"]


def test_blocking_and_asynchronous_clients_get_the_same(server: Addresses) -> None:
    async def translate() -> list[str]:
        async with AsyncTranslator(server.grpc) as translator:
            return [translation.text for translation in await translator.translate(TEXTS * 60)]

    with Translator(server.grpc) as translator:
        assert [translation.text for translation in translator.translate(TEXTS * 60)] == asyncio.run(
            translate()
        )


@pytest.mark.parametrize("options", [None, DecodingOptions(beam_size=3, num_hypotheses=2)])
def test_pieces_of_a_stream_are_the_translation(server: Addresses, options: DecodingOptions | None) -> None:
    async def read(text: str) -> tuple[list[str], Translation]:
        async with (
            AsyncTranslator(server.grpc) as translator,
            translator.stream(text, options=options) as stream,
        ):
            return [piece async for piece in stream], stream.result

    with Translator(server.grpc) as translator:
        for text in [*TEXTS, " ".join(TEXTS)]:
            with translator.stream(text, options=options, include_tokens=True) as stream:
                pieces = list(stream)
            whole = translator.translate(text, options=options, include_tokens=True)

            assert "".join(pieces) == stream.result.text == whole.text
            assert stream.result.tokens == whole.tokens
            assert [str(other) for other in stream.result.alternatives] == list(map(str, whole.alternatives))
            others, result = asyncio.run(read(text))
            assert ("".join(others), result.text) == (whole.text, whole.text)


def test_refused_stream_names_the_field(server: Addresses, dragoman: Dragoman) -> None:
    with Translator(server.grpc) as translator, pytest.raises(InvalidRequestError) as caught:
        list(translator.stream("Hi", options=DecodingOptions(beam_size=40)))

    assert caught.value.field_violations[0].field == "options.beam_size"
    assert dragoman("translate", "--stream", "A girl.").stdout == dragoman("translate", "A girl.").stdout


def test_attention_of_each_sentence_is_exact_and_of_the_translation_served(server: Addresses) -> None:
    text = "A girl reads. Two cats sleep!"
    with Translator(server.grpc) as translator:
        whole = translator.translate(text)
        attentions = translator.attention(text)

    assert len(attentions) == whole.sentence_count == 2
    for attention in attentions:
        assert attention.translation.text in whole.text
        layers, heads, targets, sources = attention.weights.shape
        assert (layers, heads) == (1, 2)
        assert (targets, sources) == (len(attention.target_units), len(attention.source_units))
        assert len(attention.input_units) == targets
        for head in range(heads):
            for target in range(targets):
                assert sum(attention.weights.row(0, head, target)) == pytest.approx(1, abs=1e-5)


def test_attention_of_a_given_translation_is_of_that(server: Addresses) -> None:
    with Translator(server.grpc) as translator:
        [attention] = translator.attention("A girl reads.", translation="Ein Haus.")

    assert attention.translation.text == "Ein Haus."
    assert "".join(unit.text for unit in attention.target_units[:-1]).replace("▁", " ").strip() == "Ein Haus."


def test_attention_that_is_selected_arrives_as_selected(server: Addresses) -> None:
    text = "A girl  reads ½ a book."
    selection = AttentionSelection(
        kinds=("decoder-self", "cross"), level="word", drop_special_tokens=True, weight_type="uint8", top_k=2
    )
    with Translator(server.grpc) as translator:
        [attention] = translator.attention(text, selection=selection)

    assert [tensor.kind.value for tensor in attention.tensors] == ["decoder-self", "cross"]
    words = [text[unit.span.start : unit.span.end] for unit in attention.source_units if unit.span]
    assert words == [unit.text for unit in attention.source_units] == text.split()
    cross = attention.tensors[1]
    assert (cross.axes, cross.num_columns) == (("layer", "head", "target", "rank"), len(words))
    for head in cross.heads:
        for row in cross.mean(head=head):
            assert len(row) == len(words)
            assert sum(weight > 0 for weight in row) <= 2
            assert 2 / len(words) - 0.01 < sum(row) < 1.01  # the two largest of a row that sums to 1


@pytest.mark.parametrize("kind", ["cross", "encoder-self", "decoder-self"])
@pytest.mark.parametrize("reduction", ["mean", "max", "rollout"])
def test_every_picture_is_drawn(dragoman: Dragoman, server: Addresses, kind: str, reduction: str) -> None:
    drawn = dragoman(
        "attention", "A girl reads a book.", "--kind", kind, "--reduce", reduction, "--width", "70"
    )

    assert drawn.exit_code == 0
    assert "self-attention" in drawn.lines[2] or kind == "cross"
    assert max(map(len, drawn.lines)) <= 70


def test_layer_that_the_model_has_not_is_blamed_on_its_option(dragoman: Dragoman, server: Addresses) -> None:
    refused = dragoman("attention", "A girl reads.", "--kind", "encoder-self", "--layer", "9")

    assert refused.exit_code == 2
    assert "--layer: 9 given; the encoder has layers 0 to 1" in " ".join(refused.stderr.split())


def test_refusals_come_as_errors_that_name_the_field(server: Addresses) -> None:
    with Translator(server.grpc) as translator:
        with pytest.raises(InvalidRequestError) as wide:
            translator.translate("Hi", options=DecodingOptions(beam_size=40))
        with pytest.raises(InvalidRequestError) as long:
            translator.translate(["fine"] * 300 + ["x" * 20_001])
        with pytest.raises(NotFoundError, match="en-de"):
            translator.translate("Hi", model="fr-it")
        with pytest.raises(NotFoundError):
            translator.translate("Hi", source_language="fr")

    assert wide.value.field_violations[0].field == "options.beam_size"
    assert "1 to 8" in wide.value.field_violations[0].description
    assert long.value.field_violations[0].field == "texts[300]"
    assert "texts[300]" in str(long.value)
    assert long.value.request_id


def test_models_and_health_are_told(server: Addresses) -> None:
    with Translator(server.grpc) as translator:
        listed = translator.models()

        assert [model.name for model in listed.models] == ["en-de"]
        assert listed.limits.max_text_count == 256
        assert translator.health() is ServingStatus.SERVING
        assert translator.health("en-de") is ServingStatus.SERVING
        assert translator.health("fr-it") is ServingStatus.SERVICE_UNKNOWN


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_as_many_lines_come_out_as_went_in_through_a_real_model(dragoman: Dragoman, end: str) -> None:
    result = dragoman("translate", stdin=end.join(NASTY_LINES).encode())

    assert (result.exit_code, len(result.lines)) == (0, len(NASTY_LINES))
    for line, translation in zip(NASTY_LINES, result.lines):
        # Each line's own translation, as it is without neighbours.
        assert translation == " ".join(dragoman("translate", line).lines), line


def test_line_that_is_too_long_is_named_and_leaves_its_place(dragoman: Dragoman) -> None:
    result = dragoman("translate", stdin=b"fine\n" * 200 + b"x" * 20_001 + b"\nfine\n")

    assert result.exit_code == 1
    assert result.lines[200] == ""
    assert len(result.lines) == 202
    assert result.lines[201] == result.lines[0] != ""
    first, warning, *_, last = result.stderr.splitlines()
    assert first.startswith("line 201: ")
    assert "20,000" in first or "20000" in first
    assert warning.startswith("Warning: 201 of the translations reached the length limit")
    assert last.startswith("Error: 1 of 202 lines")


def test_every_command_works(dragoman: Dragoman, server: Addresses) -> None:
    status = dragoman("status")
    drawn = dragoman("attention", "A girl reads a book. Two cats!", "--width", "80")
    models = json.loads(dragoman("models", "--json").stdout)
    [watched] = dragoman("status", "--watch", "--json", "--count", "1", "--interval", "0.1").lines

    assert status.exit_code == 0
    assert status.lines[0].endswith("is SERVING")
    assert drawn.exit_code == 0
    assert max(map(len, drawn.lines)) <= 80
    assert models["models"][0]["name"] == "en-de"
    assert json.loads(watched)["row_slots"] == 64


def test_watched_figures_are_metrics_that_the_server_has(server: Addresses) -> None:
    with Translator(server.grpc) as translator:
        translator.translate("A girl reads a book.")
    with urllib.request.urlopen(f"http://{server.http}/metrics", timeout=10) as response:
        page = response.read().decode()

    for name in (
        "requests_total", "request_seconds_bucket", "queue_wait_seconds_bucket", "sentences_total",
        "target_tokens_total", "waiting_requests", "running_rows", "row_slots", "step_rows_sum", "step_rows_count",
        "build_info",
    ):  # fmt: skip
        assert f"\ndragoman_{name}{{" in page, name
