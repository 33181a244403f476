import inspect
import socket
import threading
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2

from dragoman import v1
from dragoman_client import (
    AlignmentMethod,
    AsyncTranslator,
    DeadlineExceededError,
    DecodingOptions,
    FinishReason,
    Hypothesis,
    InvalidRequestError,
    LanguagePair,
    Score,
    ScoredToken,
    ServerError,
    ServingStatus,
    TextSpan,
    Translation,
    Translator,
    UnavailableError,
    WordLink,
)
from tests.client.scripted_server import DIGEST, ScriptedServer, failure


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
    ],
)
def test_what_is_no_pair_is_refused(pairs: object, message: str) -> None:
    with Translator() as translator, pytest.raises(TypeError, match=message):
        translator.score(pairs)  # type: ignore[arg-type]


def test_options_travel(server: ScriptedServer) -> None:
    with Translator(server.address) as translator:
        translator.translate(
            "Hi", options=DecodingOptions(max_decoding_length=9), split="none", model="en-de"
        )

    [request] = server.script.requests
    assert request.options.max_decoding_length == 9
    assert request.split == v1.TextSplit.TEXT_SPLIT_NONE
    assert request.model == "en-de"


def test_missing_server_is_an_error_soon() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can answer there
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        started = time.monotonic()
        with Translator(address) as translator, pytest.raises(UnavailableError) as caught:
            translator.translate("Hello")

    assert time.monotonic() - started < 3
    assert str(caught.value) == f"no server answers at {address}; start one with `dragoman-server`"


def test_timeout_of_the_call_counts_and_reaches_the_server(server: ScriptedServer) -> None:
    released = threading.Event()

    with Translator(server.address, timeout=50) as translator:
        translator.translate("Hello")  # first, so that the connection stands
        server.script.before_translate = lambda request: released.wait(10) and None
        with pytest.raises(DeadlineExceededError, match=r"within 0\.2 seconds"):
            translator.translate("Hello", timeout=0.2)
        released.set()

    assert 40 < server.script.deadlines[0] < 55
    assert server.script.deadlines[1] < 0.3  # gRPC rounds up


def test_metadata_travels_with_every_call(server: ScriptedServer) -> None:
    with Translator(server.address, metadata=[("x-request-id", "mine")]) as translator:
        translator.translate("Hello")

    assert server.script.request_ids == ["mine"]


def test_closed_translator_says_so(server: ScriptedServer) -> None:
    translator = Translator(server.address)
    translator.close()

    with pytest.raises(RuntimeError, match="closed"):
        translator.translate("Hello")


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_impossible_timeout_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        Translator(timeout=timeout)
    with Translator() as translator, pytest.raises(ValueError, match="timeout"):
        translator.translate("Hello", timeout=timeout)


@pytest.mark.parametrize("timeout", [float("inf"), 1e30])
def test_timeout_beyond_what_grpc_counts_is_none(server: ScriptedServer, timeout: float) -> None:
    with Translator(server.address, timeout=timeout) as translator:
        assert translator.translate("Hello").text == "<Hello>"
        assert translator.translate("Hello", timeout=timeout).text == "<Hello>"


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


def test_models_are_listed_with_limits(server: ScriptedServer) -> None:
    with Translator(server.address) as translator:
        models = translator.models()

    assert len(models) == 1
    assert models.models[0].name == "en-de"
    assert models.models[0].language_pairs == (LanguagePair("en", "de"),)
    assert models.models[0].parameter_count == 7_375_360
    assert models.limits.max_text_count == 256


def test_health_is_of_the_server_or_of_a_model(server: ScriptedServer) -> None:
    server.health.set("en-de", health_pb2.HealthCheckResponse.NOT_SERVING)

    with Translator(server.address) as translator:
        assert translator.health() is ServingStatus.SERVING
        assert translator.health("en-de") is ServingStatus.NOT_SERVING
        assert translator.health("xx-yy") is ServingStatus.SERVICE_UNKNOWN


def test_one_translator_serves_several_threads(server: ScriptedServer) -> None:
    results: list[str] = []
    with Translator(server.address) as translator:

        def translate(text: str) -> None:
            results.append(translator.translate(text).text)

        threads = [threading.Thread(target=translate, args=(f"{n}",)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sorted(results) == sorted(f"<{n}>" for n in range(16))


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
