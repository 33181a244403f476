"""What callers are told of errors."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest

from dragoman_server import errors
from dragoman_server.statuses import ANSWERS
from tests.server.scripted_calls import Stage, pairs, refused, scripted, status_of


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with scripted() as stage:
        yield stage


def leaves(root: type[errors.CallError]) -> set[type[errors.CallError]]:
    below = root.__subclasses__()
    return {root} if not below else set().union(*map(leaves, below))


def test_every_leaf_of_the_error_tree_has_its_answer():
    assert set(ANSWERS) == leaves(errors.CallError)


@pytest.mark.parametrize("kind", sorted(ANSWERS, key=lambda kind: kind.__name__))
async def test_each_error_reaches_the_caller_with_status_and_details(
    stage: Stage, kind: type[errors.CallError]
):
    violation = errors.FieldViolation("texts[0]", "too long")
    error = kind(violations=[violation]) if issubclass(kind, errors.RequestError) else kind(*_arguments(kind))

    def fail() -> None:
        raise error

    stage.service.behaviour = fail
    caught = await refused(stage)
    answer = ANSWERS[kind]
    status, details = status_of(caught)
    assert caught.code() is answer.code
    assert status.code == answer.code.value[0]
    assert status.message == caught.details() == str(error)
    assert details["ErrorInfo"].reason == answer.reason
    assert details["ErrorInfo"].domain == "dragoman"
    assert ("RetryInfo" in details) == (answer.retry_seconds is not None)
    assert ("grpc-retry-pushback-ms" in pairs(caught.trailing_metadata())) == (
        answer.retry_seconds is not None
    )
    if issubclass(kind, errors.RequestError):
        (found,) = details["BadRequest"].field_violations
        assert (found.field, found.description) == ("texts[0]", "too long")
    labels = {"method": "TranslateText", "model": "en-de", "code": answer.code.name}
    assert stage.value("requests_total", **labels) == 1
    assert stage.value("refused_total", reason=answer.reason) == answer.is_refusal


def _arguments(kind: type[errors.CallError]) -> tuple[str | float, ...]:
    arguments: dict[type[errors.CallError], tuple[str | float, ...]] = {
        errors.QueueFullError: ("the queue is full",),
        errors.DeadlineUnreachableError: (2.5, 0.5),
        errors.EngineHungError: ("en-de", 61.0),
        errors.EngineGoneError: ("en-de",),
    }
    return arguments.get(kind, ())


async def test_the_pushback_is_the_retry_delay(stage: Stage):
    def fail() -> None:
        raise errors.QueueFullError("full")

    stage.service.behaviour = fail
    caught = await refused(stage)
    _, details = status_of(caught)
    milliseconds = int(pairs(caught.trailing_metadata())["grpc-retry-pushback-ms"])
    assert details["RetryInfo"].retry_delay.ToMilliseconds() == milliseconds
    assert 100 <= milliseconds <= 1000


async def test_an_error_that_knows_when_another_try_makes_sense_is_believed(stage: Stage):
    def fail() -> None:
        raise errors.QueueFullError("full", retry_seconds=12)

    stage.service.behaviour = fail
    caught = await refused(stage)
    _, details = status_of(caught)
    milliseconds = int(pairs(caught.trailing_metadata())["grpc-retry-pushback-ms"])
    assert details["RetryInfo"].retry_delay.ToMilliseconds() == milliseconds
    assert 9000 <= milliseconds <= 15000


async def test_a_deadline_that_cannot_be_met_says_so_and_counts_as_a_refusal(stage: Stage):
    def fail() -> None:
        raise errors.DeadlineUnreachableError(2.5, 0.5)

    stage.service.behaviour = fail
    caught = await refused(stage)
    _, details = status_of(caught)
    assert caught.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert details["ErrorInfo"].reason == "DEADLINE_UNREACHABLE"
    assert "RetryInfo" not in details
    assert stage.value("refused_total", reason="DEADLINE_UNREACHABLE") == 1


async def test_an_error_carries_the_request_id_too(stage: Stage):
    def fail() -> None:
        raise errors.NotFoundError("no such model")

    stage.service.behaviour = fail
    caught = await refused(stage, metadata=(("x-request-id", "id-8"),))
    assert pairs(caught.trailing_metadata())["x-request-id"] == "id-8"
    assert status_of(caught)[1]["ErrorInfo"].metadata["request_id"] == "id-8"


async def test_a_message_of_any_length_fits_into_the_metadata(stage: Stage):
    violations = [errors.FieldViolation(f"texts[{i}]", "x" * 200) for i in range(300)]

    def fail() -> None:
        raise errors.InvalidArgumentError(violations=violations)

    stage.service.behaviour = fail
    caught = await refused(stage)
    assert caught.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert len(status_of(caught)[1]["BadRequest"].field_violations) == 16
