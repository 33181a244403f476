"""Lists that go out in several calls."""

import grpc
import pytest

from dragoman import v1
from dragoman_client import (
    InvalidRequestError,
    Score,
    ScoredToken,
    Translator,
)
from tests.client.failures import failure
from tests.client.scripted_server import DIGEST, ScriptedServer


def test_long_list_comes_back_in_order_through_several_calls(server: ScriptedServer) -> None:
    texts = [f"text {number}" for number in range(600)]

    with Translator(server.address) as translator:
        translations = translator.translate(texts)

    assert [translation.text for translation in translations] == [f"<{text}>" for text in texts]
    assert [len(request.texts) for request in server.script.requests] == [256, 256, 88]


@pytest.mark.parametrize("field", ["texts", "target_prefixes"])
def test_error_in_a_later_call_names_the_callers_text(server: ScriptedServer, field: str) -> None:
    def refuse_second_call(request: v1.TranslateTextRequest) -> None:
        if request.texts[0] == "text 256":
            message = f"{field}[3]: 300 tokens, at most 256"
            server.script.failures.append(
                failure(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    message,
                    reason="INVALID_ARGUMENT",
                    violations={f"{field}[3]": "300 tokens"},
                )
            )

    server.script.before_translate = refuse_second_call

    with (
        Translator(server.address) as translator,
        pytest.raises(InvalidRequestError, match=rf"{field}\[259\]") as caught,
    ):
        translator.translate([f"text {number}" for number in range(300)])

    assert caught.value.field_violations[0].field == f"{field}[259]"


def test_server_that_takes_fewer_texts_gets_fewer(server: ScriptedServer) -> None:
    server.script.max_text_count = 10
    texts = [f"text {number}" for number in range(300)]

    with Translator(server.address) as translator:
        translations = translator.translate(texts, target_prefix=[f"prefix {text}" for text in texts])

    assert [translation.text for translation in translations] == [f"<{text}>" for text in texts]
    taken = [request for request in server.script.requests if len(request.texts) <= 10]
    assert [text for request in taken for text in request.texts] == texts
    assert all(
        list(request.target_prefixes) == [f"prefix {text}" for text in request.texts] for request in taken
    )
    assert len(server.script.requests) - len(taken) < 10  # it learns


def test_error_in_a_part_of_a_call_names_the_callers_text(server: ScriptedServer) -> None:
    server.script.max_text_count = 10

    def refuse(request: v1.TranslateTextRequest) -> None:
        if "text 77" in request.texts and len(request.texts) <= 10:
            index = list(request.texts).index("text 77")
            server.script.failures.append(failure(grpc.StatusCode.INVALID_ARGUMENT, f"texts[{index}]: bad"))

    server.script.before_translate = refuse

    with Translator(server.address) as translator, pytest.raises(InvalidRequestError, match=r"texts\[77\]"):
        translator.translate([f"text {number}" for number in range(100)])


def test_one_text_that_is_too_much_is_refused(server: ScriptedServer) -> None:
    server.script.failures = [
        failure(grpc.StatusCode.INVALID_ARGUMENT, "too many sentences", violations={"texts": "too many"})
    ]

    with Translator(server.address) as translator, pytest.raises(InvalidRequestError, match="too many"):
        translator.translate("Hello")
    assert len(server.script.requests) == 1


def test_pairs_are_scored_in_their_order_through_as_many_calls_as_it_takes(server: ScriptedServer) -> None:
    pairs = [(f"text {number}", " ".join("x" * (1 + number % 3))) for number in range(300)]

    with Translator(server.address) as translator:
        scores = translator.score(pairs, source_language="en", target_language="de", model="en-de")
        none = translator.score([])

    assert [score.score for score in scores] == [-0.75 - 0.5 * (number % 3) for number in range(300)]
    assert scores[0] == Score(
        score=-0.75,
        normalized_score=-0.375,
        tokens=(ScoredToken("▁x", -0.5, None), ScoredToken("</s>", -0.25, None)),
        model="en-de",
        model_digest=DIGEST,
    )
    assert none == []
    assert [len(request.items) for request in server.script.score_requests] == [256, 44]
    request = server.script.score_requests[1]
    assert (request.items[0].text, request.items[0].translation) == ("text 256", "x x")
    assert (request.model, request.source_language_code, request.target_language_code) == (
        "en-de",
        "en",
        "de",
    )


def test_tokens_go_out_as_their_pieces(server: ScriptedServer) -> None:
    with Translator(server.address) as translator:
        translation = translator.translate("Hi", include_tokens=True)
        translator.score([("Hi", translation.tokens), ("Hi", list(translation.tokens[:1])), ("Hi", "Ho")])

    (request,) = server.script.score_requests
    assert [list(item.pieces) for item in request.items] == [["▁<Hi>", "</s>"], ["▁<Hi>"], []]
    assert [item.translation for item in request.items] == ["", "", "Ho"]


def test_tokens_count_among_a_calls_characters(server: ScriptedServer) -> None:
    long = [ScoredToken("▁x", -0.5, None)] * 6_000

    with Translator(server.address) as translator:
        translator.score([("a", long), ("b", long)])

    assert [len(request.items) for request in server.script.score_requests] == [1, 1]


def test_translation_whose_tokens_were_not_asked_for_is_refused(server: ScriptedServer) -> None:
    with Translator(server.address) as translator:
        translation = translator.translate("Hi")
        with pytest.raises(ValueError, match=r"pairs\[0\] has no tokens; .*include_tokens=True"):
            translator.score([("Hi", translation.tokens)])

    assert server.script.score_requests == []


def test_server_that_scores_fewer_pairs_gets_fewer(server: ScriptedServer) -> None:
    server.script.max_text_count = 7

    with Translator(server.address) as translator:
        scores = translator.score([(str(number), "x") for number in range(50)])

    assert len(scores) == 50


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["ab"], r"pairs\[0\] is 'ab'"),
        ([("a", "b"), ("a",)], r"pairs\[1\] is"),
        ([("a", b"b")], "type bytes"),
        ([("a", None)], "type NoneType"),
        ([("a", ["b"])], r"items\[0\].pieces\[0\].*type str.*ScoredToken"),
    ],
)
def test_what_is_no_pair_is_refused(pairs: object, message: str) -> None:
    with Translator() as translator, pytest.raises(TypeError, match=message):
        translator.score(pairs)  # type: ignore[arg-type]
