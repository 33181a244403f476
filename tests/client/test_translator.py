import inspect

import pytest

from dragoman import v1
from dragoman_client import (
    AlignmentMethod,
    AsyncTranslator,
    DecodingOptions,
    FinishReason,
    Hypothesis,
    ScoredToken,
    ServerError,
    TextSpan,
    Translation,
    Translator,
    WordLink,
)
from tests.client.scripted_server import DIGEST, ScriptedServer


def test_text_gives_a_translation_and_a_list_a_list(server: ScriptedServer) -> None:
    with Translator(server.address) as translator:
        one = translator.translate("Hello")
        several = translator.translate(["a", "b"])
        none = translator.translate([])

    assert one == Translation(
        text="<Hello>",
        finish_reason=FinishReason.EOS,
        score=-1.5,
        normalized_score=-0.5,
        source_token_count=4,
        target_token_count=3,
        sentence_count=1,
        tokens=(),
        model="en-de",
        model_digest=DIGEST,
    )
    assert str(one) == "<Hello>"
    assert [translation.text for translation in several] == ["<a>", "<b>"]
    assert none == []


def test_blank_text_comes_back_without_scores(server: ScriptedServer) -> None:
    with Translator(server.address) as translator:
        blank = translator.translate(" \n")

    assert (blank.text, blank.finish_reason) == (" \n", FinishReason.BLANK)
    assert (blank.score, blank.normalized_score) == (None, None)


def test_tokens_come_when_asked_for(server: ScriptedServer) -> None:
    with Translator(server.address) as translator:
        translation = translator.translate("Hi", include_tokens=True)

    assert translation.tokens == (
        ScoredToken("▁<Hi>", -0.25, TextSpan(0, 4)),
        ScoredToken("</s>", -0.125, None),
    )


def test_word_links_come_when_asked_for_in_every_kind_of_call(server: ScriptedServer) -> None:
    with Translator(server.address) as translator:
        translation = translator.translate("a bc", include_alignments=True)
        with translator.stream("a bc", include_alignments="naive") as stream:
            list(stream)
        [result] = translator.translate_batch(["a bc"], include_alignments=AlignmentMethod.SHIFTED)

    assert translation.word_links == (
        WordLink(None, TextSpan(0, 2), 0.5),
        WordLink(TextSpan(2, 4), TextSpan(3, 6), 0.5),
    )
    assert stream.result.word_links == result.unwrap().word_links == translation.word_links
    outputs = [
        server.script.requests[0].output,
        server.script.stream_requests[0].output,
        server.script.batch_calls[0][0].output,
    ]
    assert [output.include_alignments for output in outputs] == [True] * 3
    assert [output.alignment_method for output in outputs] == [0, 1, 2]


def test_a_method_that_there_is_not_is_refused(server: ScriptedServer) -> None:
    with (
        Translator(server.address) as translator,
        pytest.raises(ValueError, match="'guess'; it must be True, False, 'naive' or 'shifted'"),
    ):
        translator.translate("a", include_alignments="guess")


def test_several_hypotheses_come_best_first_with_the_seed_that_drew_them(server: ScriptedServer) -> None:
    options = DecodingOptions(sampling_topk=0, num_hypotheses=2, seed=0)

    with Translator(server.address) as translator:
        plain = translator.translate("Hi")
        drawn = translator.translate("Hi", options=options, include_tokens=True)

    assert (plain.alternatives, plain.seed) == ((), None)
    assert drawn.seed == 0
    assert drawn.alternatives == (
        Hypothesis("<Hi>", FinishReason.EOS, -1.5, -0.5, 3, drawn.tokens),
        Hypothesis("<Hi>'", FinishReason.LENGTH, -3.0, -1.0, 3, drawn.tokens),
    )
    assert [str(alternative) for alternative in drawn.alternatives] == ["<Hi>", "<Hi>'"]


def test_options_travel(server: ScriptedServer) -> None:
    with Translator(server.address) as translator:
        translator.translate(
            "Hi", options=DecodingOptions(max_decoding_length=9), split="none", model="en-de"
        )

    [request] = server.script.requests
    assert request.options.max_decoding_length == 9
    assert request.split == v1.TextSplit.TEXT_SPLIT_NONE
    assert request.model == "en-de"


def test_texts_that_can_be_read_only_once_are_all_translated(server: ScriptedServer) -> None:
    with Translator(server.address) as translator:
        translations = translator.translate(text for text in ("a", "b"))  # type: ignore[call-overload]

    assert [translation.text for translation in translations] == ["<a>", "<b>"]


@pytest.mark.parametrize("texts", [b"Hello", [b"Hello"], [None]])
def test_what_is_no_text_is_refused_by_its_type(texts: object) -> None:
    with Translator() as translator, pytest.raises(TypeError, match=r"texts\[0\] is of type"):
        translator.translate(texts)  # type: ignore[call-overload]


def test_translations_that_are_missing_are_the_servers_fault(server: ScriptedServer) -> None:
    def lose_one(request: v1.TranslateTextRequest) -> None:
        del request.texts[0]

    server.script.before_translate = lose_one

    with (
        Translator(server.address) as translator,
        pytest.raises(ServerError, match="1 translations of 2 texts"),
    ):
        translator.translate(["a", "b"])


@pytest.mark.parametrize("method", [name for name in dir(Translator) if not name.startswith("_")])
def test_both_translators_take_the_same_arguments(method: str) -> None:
    blocking, asynchronous = getattr(Translator, method), getattr(AsyncTranslator, method)

    for ours, theirs in zip(
        inspect.signature(blocking).parameters.values(),
        inspect.signature(asynchronous).parameters.values(),
        strict=True,
    ):
        assert (ours.name, ours.kind, ours.default) == (theirs.name, theirs.kind, theirs.default)


METHODS = {
    "TranslateText": "translate",
    "StreamTranslateText": "stream",
    "TranslateBatch": "translate_batch",
    "ScoreText": "score",
    "DumpAttention": "attention",
    "ListModels": "models",
}


def test_every_method_of_the_contract_has_one_of_ours() -> None:
    service = v1.translation_pb2.DESCRIPTOR.services_by_name["TranslationService"]

    assert set(METHODS) == set(service.methods_by_name)
    assert all(callable(getattr(Translator, method)) for method in METHODS.values())


def test_both_translators_have_the_same_methods() -> None:
    def methods(translator: type) -> set[str]:
        return {name for name in dir(translator) if not name.startswith("_")}

    assert methods(Translator) == methods(AsyncTranslator)
