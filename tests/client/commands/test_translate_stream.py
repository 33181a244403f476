"""Translations that are shown while they are made."""

import json
from collections.abc import Iterator

from dragoman import v1
from tests.client.command_line import Dragoman
from tests.client.scripted_server import ScriptedServer


def test_links_of_a_translation_that_is_shown_while_it_grows_are_refused(dragoman: Dragoman) -> None:
    result = dragoman("translate", "--alignments", "auto", "--stream", "one two")

    assert result.exit_code == 2
    assert "leave --stream off" in result.stderr


def test_text_is_streamed_when_asked_for(server: ScriptedServer, dragoman: Dragoman) -> None:
    result = dragoman("translate", "--stream", "--target-prefix", "Das", "one two", "three", "")

    assert (result.exit_code, result.stdout, result.stderr) == (0, b"<one two>\n<three>\n\n", "")
    assert [request.text for request in server.script.stream_requests] == ["one two", "three", ""]
    assert {request.target_prefix for request in server.script.stream_requests} == {"Das"}


def test_text_is_not_streamed_into_a_pipe_unless_asked_for(
    server: ScriptedServer, dragoman: Dragoman
) -> None:
    dragoman("translate", "one")

    assert server.script.stream_requests == []


def test_streamed_text_has_below_it_what_was_asked_for(dragoman: Dragoman) -> None:
    streamed = dragoman(
        "translate", "--stream", "--tokens", "--beam-size", "2", "--num-hypotheses", "2", "Hi you"
    )
    whole = dragoman("translate", "--tokens", "--beam-size", "2", "--num-hypotheses", "2", "Hi you")

    assert streamed.lines == whole.lines


def test_streamed_json_is_each_piece_and_then_the_translation(dragoman: Dragoman) -> None:
    *pieces, last = map(json.loads, dragoman("translate", "--stream", "--json", "one two").lines)

    assert pieces == [{"delta": "<one"}, {"delta": " two>"}]
    assert last == json.loads(dragoman("translate", "--json", "one two").stdout)


def test_stream_that_fails_ends_its_line_first(server: ScriptedServer, dragoman: Dragoman) -> None:
    def fail_later(request: v1.StreamTranslateTextRequest) -> Iterator[v1.StreamTranslateTextResponse]:
        yield v1.StreamTranslateTextResponse(delta=v1.TextDelta(text="half"))

    server.script.stream = fail_later

    result = dragoman("translate", "--stream", "Hi")

    assert (result.exit_code, result.stdout) == (1, b"half\n")
    assert "before the whole translation" in result.stderr


def test_streamed_translation_that_may_be_cut_is_said_so(server: ScriptedServer, dragoman: Dragoman) -> None:
    server.script.finish_reason = v1.FinishReason.FINISH_REASON_LENGTH

    assert "may be cut: text 1" in dragoman("translate", "--stream", "Hi").stderr
