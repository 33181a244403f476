"""ScoreText: the probability of given translations, whole or nothing."""

from __future__ import annotations

from dragoman.v1 import Score as ScoreMessage
from dragoman.v1 import ScoreTextRequest, ScoreTextResponse, TokenScore
from dragoman_model.errors import PieceError
from dragoman_model.plan import FinishedSentence
from dragoman_server.catalogue import ServedModel
from dragoman_server.errors import FieldViolation, InvalidArgumentError
from dragoman_server.messages import span_message
from dragoman_server.request import Decode, ScoreRequest
from dragoman_server.rpcs.work import (
    Backend,
    Context,
    check_size,
    check_target_length,
    decode,
    given_target,
    given_work,
    off_loop,
    prepare_text,
)
from dragoman_server.validation import validate_score_text


async def score_text(backend: Backend, request: ScoreTextRequest, context: Context) -> ScoreTextResponse:
    """Returns the probability of the request's translations; the whole call succeeds or fails."""
    backend.record(request.model, len(request.items))
    asked = validate_score_text(request, backend.limits)
    served = backend.select(asked.model)
    num_characters = sum(map(len, asked.texts)) + sum(map(_num_characters, asked.translations))
    check_size("items", len(asked.texts), served)
    with served.engine.room.hold(len(asked.texts)):
        work = await off_loop(num_characters, lambda: _score_work(served, asked))
    results = await decode(served, work, context)
    scores = await off_loop(
        num_characters,
        lambda: [
            _score_message(served, translation, result)
            for translation, result in zip(asked.translations, results, strict=True)
        ],
    )
    return ScoreTextResponse(scores=scores, model=served.name, model_digest=served.model.digest)


def _num_characters(translation: str | tuple[str, ...]) -> int:
    return len(translation) if isinstance(translation, str) else sum(map(len, translation))


def _score_work(served: ServedModel, asked: ScoreRequest) -> list[Decode]:
    work = []
    for index, (text, translation) in enumerate(zip(asked.texts, asked.translations, strict=True)):
        item = f"items[{index}]"
        prepared = prepare_text(served, f"{item}.text", text, split=False)
        if not prepared.source_ids:
            violation = FieldViolation(f"{item}.text", "blank; there is nothing to score")
            raise InvalidArgumentError(violations=[violation])
        if isinstance(translation, str):
            target_ids = given_target(served, f"{item}.translation", translation)
        else:
            target_ids = _given_pieces(served, f"{item}.pieces", translation)
        work.append(given_work(prepared.source_ids[0], target_ids))
    return work


def _given_pieces(served: ServedModel, field: str, pieces: tuple[str, ...]) -> tuple[int, ...]:
    """Returns the tokens of a translation that the caller gives in pieces.

    Raises:
        InvalidArgumentError: There are more than the model writes, or one that it doesn't; ``field`` is the request's field.
    """
    check_target_length(served, field, len(pieces))
    try:
        return tuple(served.model.tokenizer.target_ids(pieces))
    except PieceError as error:
        violation = FieldViolation(f"{field}[{error.index}]", str(error))
        raise InvalidArgumentError(violations=[violation]) from error


def _score_message(
    served: ServedModel, translation: str | tuple[str, ...], result: FinishedSentence
) -> ScoreMessage:
    tokenizer, best = served.model.tokenizer, result.best
    # Spans are those of the text that was given; of pieces, of the one that they are.
    pieces = (
        tokenizer.given_target_pieces(translation)
        if isinstance(translation, str)
        else tokenizer.target_pieces(best.token_ids)[1]
    )
    score = sum(best.log_probabilities)
    return ScoreMessage(
        score=score,
        normalized_score=score / len(pieces),
        tokens=[
            TokenScore(piece=piece.text, log_probability=log_probability, span=span_message(piece.span))
            for piece, log_probability in zip(pieces, best.log_probabilities, strict=True)
        ],
    )
