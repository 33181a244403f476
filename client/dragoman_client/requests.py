"""Arguments → messages of the wire contract: the one place where they are written."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import grpc

from dragoman.v1 import AlignmentMethod as WireMethod
from dragoman.v1 import DecodingOptions as WireOptions
from dragoman.v1 import (
    DumpAttentionRequest,
    OutputOptions,
    ScoreItem,
    ScoreTextRequest,
    StreamTranslateTextRequest,
    TextSplit,
    TranslateBatchRequest,
    TranslateTextRequest,
)
from dragoman_client.chunks import Chunk
from dragoman_client.errors import FieldViolation, InvalidRequestError
from dragoman_client.options import AlignmentMethod, DecodingOptions, Split
from dragoman_client.results import ScoredToken, ScorePair
from dragoman_client.selection import AttentionSelection
from dragoman_client.wire_selection import build_selection

MAX_TEXTS_PER_CALL = 256
"""The server's default limit."""

MAX_CHARACTERS_PER_CALL = 20_000
"""What the server takes as one text by default. A call with more sentences than its queue has room for is never taken,
so long texts travel few together."""

_METHODS = {
    AlignmentMethod.NAIVE: WireMethod.ALIGNMENT_METHOD_NAIVE,
    AlignmentMethod.SHIFTED: WireMethod.ALIGNMENT_METHOD_SHIFTED,
}
_SPLITS = {Split.SENTENCES: TextSplit.TEXT_SPLIT_SENTENCES, Split.NONE: TextSplit.TEXT_SPLIT_NONE}


def build_translate_chunks(
    texts: Sequence[str],
    *,
    source_language: str | None,
    target_language: str | None,
    model: str | None,
    options: DecodingOptions | None,
    target_prefixes: Sequence[str] | None = None,
    include_tokens: bool,
    include_alignments: AlignmentMethod | str | bool = False,
    split: Split | str,
) -> list[Chunk[TranslateTextRequest]]:
    """Returns the calls that translate all texts, each within the server's limits.

    Raises:
        InvalidRequestError: A text or a prefix cannot be sent.
        ValueError: ``split`` names no way to split, ``include_alignments`` no method, or there isn't a prefix for each text.
    """
    for index, text in enumerate(texts):
        check_encodable(text, f"texts[{index}]")
    for index, prefix in enumerate(target_prefixes or ()):
        check_encodable(prefix, f"target_prefixes[{index}]")
    if target_prefixes is not None and len(target_prefixes) != len(texts):
        raise ValueError(
            f"{len(target_prefixes)} target prefixes for {len(texts)} texts; one for each is needed"
        )
    _check_names(model, source_language, target_language)
    output = _build_output(include_tokens, include_alignments)
    chunks = []
    for offset, count in _cut([len(text) for text in texts]):
        request = TranslateTextRequest(
            texts=texts[offset : offset + count],
            model=model or "",
            source_language_code=source_language or "",
            target_language_code=target_language or "",
            options=_build_options(options),
            split=_build_split(split),
            target_prefixes=target_prefixes[offset : offset + count] if target_prefixes else (),
        )
        if output is not None:
            request.output.CopyFrom(output)
        chunks.append(Chunk(request, offset, count))
    return chunks


def build_stream_request(
    text: str,
    *,
    source_language: str | None,
    target_language: str | None,
    model: str | None,
    options: DecodingOptions | None,
    target_prefix: str | None,
    include_tokens: bool,
    include_alignments: AlignmentMethod | str | bool = False,
    split: Split | str,
) -> StreamTranslateTextRequest:
    """Returns the call that streams a text's translation.

    Raises:
        InvalidRequestError: The text or the prefix cannot be sent.
        ValueError: ``split`` names no way to split, ``include_alignments`` no method.
    """
    check_encodable(text, "text")
    check_encodable(target_prefix or "", "target_prefix")
    _check_names(model, source_language, target_language)
    return StreamTranslateTextRequest(
        text=text,
        model=model or "",
        source_language_code=source_language or "",
        target_language_code=target_language or "",
        options=_build_options(options),
        split=_build_split(split),
        target_prefix=target_prefix or "",
        output=_build_output(include_tokens, include_alignments),
    )


def build_batch_header(
    *,
    source_language: str | None,
    target_language: str | None,
    model: str | None,
    options: DecodingOptions | None,
    include_tokens: bool,
    include_alignments: AlignmentMethod | str | bool = False,
    split: Split | str,
) -> TranslateBatchRequest:
    """Returns what the first message of a bulk call holds beside its texts.

    Raises:
        InvalidRequestError: A name cannot be sent.
        ValueError: ``split`` names no way to split, ``include_alignments`` no method.
    """
    _check_names(model, source_language, target_language)
    return TranslateBatchRequest(
        model=model or "",
        source_language_code=source_language or "",
        target_language_code=target_language or "",
        options=_build_options(options),
        split=_build_split(split),
        output=_build_output(include_tokens, include_alignments),
    )


def build_score_chunks(
    pairs: Sequence[ScorePair],
    *,
    source_language: str | None,
    target_language: str | None,
    model: str | None,
) -> list[Chunk[ScoreTextRequest]]:
    """Returns the calls that score all pairs, each within the server's limits.

    Raises:
        InvalidRequestError: A text or a translation cannot be sent.
        TypeError: A pair is none.
        ValueError: A translation is given in tokens, but without any.
    """
    for index, pair in enumerate(pairs):
        if isinstance(pair, str) or len(pair) != 2:
            raise TypeError(f"pairs[{index}] is {pair!r}; it must be a text and its translation")
    _check_names(model, source_language, target_language)
    items = [_build_score_item(index, *pair) for index, pair in enumerate(pairs)]
    return [
        Chunk(
            ScoreTextRequest(
                items=items[offset : offset + count],
                model=model or "",
                source_language_code=source_language or "",
                target_language_code=target_language or "",
            ),
            offset,
            count,
        )
        for offset, count in _cut(
            [len(item.text) + len(item.translation) + sum(map(len, item.pieces)) for item in items]
        )
    ]


def _build_score_item(index: int, text: str, translation: str | Sequence[ScoredToken]) -> ScoreItem:
    check_encodable(text, f"items[{index}].text")
    if not isinstance(translation, Sequence) or isinstance(translation, str | bytes):
        check_encodable(translation, f"items[{index}].translation")
        return ScoreItem(text=text, translation=translation)
    if not translation:
        raise ValueError(
            f"pairs[{index}] has no tokens; translate with include_tokens=True, or give the translation's text"
        )
    for place, token in enumerate(translation):
        kind: type = type(token)
        if not issubclass(kind, ScoredToken):
            raise TypeError(
                f"items[{index}].pieces[{place}] is of type {kind.__name__}; it must be ScoredToken"
            )
        check_encodable(token.piece, f"items[{index}].pieces[{place}]")
    return ScoreItem(text=text, pieces=[token.piece for token in translation])


def build_attention_request(
    text: str,
    *,
    translation: str | None,
    source_language: str | None,
    target_language: str | None,
    model: str | None,
    options: DecodingOptions | None,
    split: Split | str | None,
    selection: AttentionSelection | None = None,
) -> DumpAttentionRequest:
    """Returns the call that dumps a text's attention.

    Raises:
        InvalidRequestError: The text or the translation cannot be sent.
        ValueError: ``split`` names no way to split, or a value of the selection is none of its enumeration's.
    """
    check_encodable(text, "text")
    if translation is not None:
        check_encodable(translation, "translation")
    _check_names(model, source_language, target_language)
    return DumpAttentionRequest(
        text=text,
        translation=translation,
        model=model or "",
        source_language_code=source_language or "",
        target_language_code=target_language or "",
        options=_build_options(options),
        split=TextSplit.TEXT_SPLIT_UNSPECIFIED if split is None else _build_split(split),
        selection=None if selection is None else build_selection(selection),
    )


def check_encodable(text: str, field: str) -> None:
    """Refuses what UTF-8 cannot carry, before protobuf does so less clearly.

    Raises:
        InvalidRequestError: The text holds a lone surrogate.
        TypeError: It is no text; ``translate`` cannot tell bytes from a list by itself.
    """
    kind: type = type(text)
    if not issubclass(kind, str):
        raise TypeError(f"{field} is of type {kind.__name__}; it must be str")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        description = (
            f"holds the lone surrogate U+{ord(text[error.start]):04X} at position {error.start}, "
            "which is no character and which UTF-8 cannot carry"
        )
        raise InvalidRequestError(
            f"{field} {description}",
            code=grpc.StatusCode.INVALID_ARGUMENT,
            field_violations=(FieldViolation(field, description),),
        ) from error


def _check_names(model: str | None, source_language: str | None, target_language: str | None) -> None:
    check_encodable(model or "", "model")
    check_encodable(source_language or "", "source_language_code")
    check_encodable(target_language or "", "target_language_code")


def _cut(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields (offset, count) of runs that keep to both limits; a text over the budget travels alone."""
    offset = count = characters = 0
    for length in lengths:
        full = count == MAX_TEXTS_PER_CALL or characters + length > MAX_CHARACTERS_PER_CALL
        if count and full:
            yield offset, count
            offset, count, characters = offset + count, 0, 0
        count += 1
        characters += length
    if count:
        yield offset, count


def _build_options(options: DecodingOptions | None) -> WireOptions | None:
    if options is None:
        return None
    kind: type = type(options)
    if not issubclass(kind, DecodingOptions):
        raise TypeError(f"options is of type {kind.__name__}; it must be DecodingOptions")
    return WireOptions(**{name: value for name, value in asdict(options).items() if value is not None})


def _build_output(
    include_tokens: bool, include_alignments: AlignmentMethod | str | bool
) -> OutputOptions | None:
    output = OutputOptions(include_tokens=include_tokens)
    if include_alignments is not False:
        output.include_alignments = True
        output.alignment_method = _build_method(include_alignments)
    return output if output.ListFields() else None


def _build_method(method: AlignmentMethod | str | bool) -> WireMethod:
    if method is True:
        return WireMethod.ALIGNMENT_METHOD_UNSPECIFIED
    try:
        return _METHODS[AlignmentMethod(method)]
    except ValueError:
        allowed = " or ".join(repr(known.value) for known in AlignmentMethod)
        raise ValueError(f"include_alignments is {method!r}; it must be True, False, {allowed}") from None


def _build_split(split: Split | str) -> TextSplit:
    try:
        return _SPLITS[Split(split)]
    except ValueError:
        allowed = " or ".join(repr(known.value) for known in Split)
        raise ValueError(f"split is {split!r}; it must be {allowed}") from None
