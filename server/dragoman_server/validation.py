"""From protocol messages to plain data: every field is obeyed or refused.

Values that no server would take are INVALID_ARGUMENT and reported first; sound values for things that this server can't
do yet are UNSUPPORTED. Either way all fields at fault are named at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from dragoman.v1 import (
    AlignmentMethod,
    BatchItem,
    DumpAttentionRequest,
    OutputOptions,
    ScoreItem,
    ScoreTextRequest,
    StreamTranslateTextRequest,
    TextSplit,
    TranslateBatchRequest,
    TranslateTextRequest,
)
from dragoman_server.decoding import check_options
from dragoman_server.findings import Findings
from dragoman_server.languages import is_well_formed
from dragoman_server.limits import CallLimits
from dragoman_server.request import (
    AttentionRequest,
    BulkRequest,
    ModelChoice,
    OutputChoice,
    ScoreRequest,
    StreamRequest,
    TranslateRequest,
)
from dragoman_server.selection import check_selection

_ModelRequest = (
    TranslateTextRequest
    | StreamTranslateTextRequest
    | TranslateBatchRequest
    | DumpAttentionRequest
    | ScoreTextRequest
)

_MAX_ID_BYTES = 128

_ALIGNMENT_METHODS: dict[int, Literal["naive", "shifted"]] = {
    AlignmentMethod.ALIGNMENT_METHOD_NAIVE: "naive",
    AlignmentMethod.ALIGNMENT_METHOD_SHIFTED: "shifted",
}


def validate_translate_text(request: TranslateTextRequest, limits: CallLimits) -> TranslateRequest:
    """Returns what the caller asks for.

    Raises:
        InvalidArgumentError: A field holds what no server would take.
        UnsupportedError: A field asks for what this server can't do.
    """
    findings = Findings()
    count = len(request.texts)
    if not 1 <= count <= limits.max_text_count:
        findings.refuse("texts", f"{count} texts given; 1 to {limits.max_text_count} allowed")
    else:  # looking at each of millions would keep every other call waiting
        for index, text in enumerate(request.texts):
            _check_text(f"texts[{index}]", text, limits, findings)
    options = check_options(request.options, limits, findings)
    output = _check_output(request.output, findings)
    split = _check_split(request.split, findings)
    model = _check_model(request, findings)
    target_prefixes = _check_prefixes(request, limits, findings)
    findings.raise_any()
    return TranslateRequest(
        texts=tuple(request.texts),
        model=model,
        options=options,
        split=split,
        output=output,
        target_prefixes=target_prefixes,
    )


def validate_stream_translate_text(request: StreamTranslateTextRequest, limits: CallLimits) -> StreamRequest:
    """Returns what the caller asks for.

    Raises:
        InvalidArgumentError: A field holds what no server would take.
        UnsupportedError: A field asks for what this server can't do.
    """
    findings = Findings()
    _check_text("text", request.text, limits, findings)
    options = check_options(request.options, limits, findings)
    output = _check_output(request.output, findings)
    split = _check_split(request.split, findings)
    model = _check_model(request, findings)
    _check_text("target_prefix", request.target_prefix, limits, findings)
    findings.raise_any()
    return StreamRequest(
        text=request.text,
        model=model,
        options=options,
        split=split,
        target_prefix=request.target_prefix,
        output=output,
    )


def validate_translate_batch(request: TranslateBatchRequest, limits: CallLimits) -> BulkRequest:
    """Returns what the first message of a bulk stream asks for; its items are validated one by one.

    Raises:
        InvalidArgumentError: A field holds what no server would take.
        UnsupportedError: A field asks for what this server can't do.
    """
    findings = Findings()
    options = check_options(request.options, limits, findings)
    output = _check_output(request.output, findings)
    split = _check_split(request.split, findings)
    model = _check_model(request, findings)
    findings.raise_any()
    return BulkRequest(model=model, options=options, split=split, output=output)


def validate_later_batch(request: TranslateBatchRequest) -> None:
    """Checks that a later message of a bulk stream holds items alone.

    Raises:
        InvalidArgumentError: It asks for something that would have to be asked for in the first one.
    """
    findings = Findings()
    for descriptor, _ in request.ListFields():
        if descriptor.name != "items":
            findings.refuse(descriptor.name, "counts in the first message of the call only; leave it unset")
    findings.raise_any()


def validate_batch_item(item: BatchItem, limits: CallLimits) -> None:
    """Checks one text of a bulk stream.

    Raises:
        InvalidArgumentError: A field holds what no server would take.
    """
    findings = Findings()
    num_bytes = len(item.id.encode())
    if num_bytes == 0:
        findings.refuse("id", "empty; it says which item a result is of")
    if num_bytes > _MAX_ID_BYTES:
        findings.refuse("id", f"{num_bytes} bytes; at most {_MAX_ID_BYTES} allowed")
    _check_text("text", item.text, limits, findings)
    _check_text("target_prefix", item.target_prefix, limits, findings)
    findings.raise_any()


def shortened_id(item_id: str) -> str:
    """Returns an item's id, or of one that is too long what it starts with, which is all that comes back of it."""
    data = item_id.encode()
    return item_id if len(data) <= _MAX_ID_BYTES else data[:_MAX_ID_BYTES].decode(errors="ignore")


def validate_dump_attention(request: DumpAttentionRequest, limits: CallLimits) -> AttentionRequest:
    """Returns what the caller asks for.

    Raises:
        InvalidArgumentError: A field holds what no server would take.
        UnsupportedError: A field asks for what this server can't do.
    """
    findings = Findings()
    _check_text("text", request.text, limits, findings)
    options = check_options(request.options, limits, findings)
    split = _check_split(request.split, findings)
    model = _check_model(request, findings)
    translation = request.translation if request.HasField("translation") else None
    if translation is not None:
        _check_text("translation", translation, limits, findings)
        _check_given_translation(request, findings)
        split = False
    selection = check_selection(request.selection, findings)
    findings.raise_any()
    return AttentionRequest(
        text=request.text,
        model=model,
        options=options,
        split=split,
        translation=translation,
        selection=selection,
    )


def validate_score_text(request: ScoreTextRequest, limits: CallLimits) -> ScoreRequest:
    """Returns what the caller asks for.

    Raises:
        InvalidArgumentError: A field holds what no server would take.
    """
    findings = Findings()
    count = len(request.items)
    if not 1 <= count <= limits.max_text_count:
        findings.refuse("items", f"{count} items given; 1 to {limits.max_text_count} allowed")
    else:
        for index, item in enumerate(request.items):
            _check_text(f"items[{index}].text", item.text, limits, findings)
            _check_text(f"items[{index}].translation", item.translation, limits, findings)
            _check_pieces(f"items[{index}].pieces", item, limits, findings)
    model = _check_model(request, findings)
    findings.raise_any()
    return ScoreRequest(
        texts=tuple(item.text for item in request.items),
        translations=tuple(tuple(item.pieces) or item.translation for item in request.items),
        model=model,
    )


def _check_text(path: str, text: str, limits: CallLimits, findings: Findings) -> None:
    if len(text) > limits.max_text_characters:
        findings.refuse(path, f"{len(text)} characters; at most {limits.max_text_characters} allowed")


def _check_pieces(path: str, item: ScoreItem, limits: CallLimits, findings: Findings) -> None:
    if item.pieces and item.translation:
        findings.refuse(path, "given beside a translation; give one of the two")
    num_characters = sum(map(len, item.pieces))
    if num_characters > limits.max_text_characters:
        findings.refuse(
            path, f"{num_characters} characters together; at most {limits.max_text_characters} allowed"
        )


def _check_prefixes(request: TranslateTextRequest, limits: CallLimits, findings: Findings) -> tuple[str, ...]:
    """Returns a prefix for each text, empty where none is asked for."""
    prefixes = tuple(request.target_prefixes)
    if prefixes and len(prefixes) != len(request.texts):
        findings.refuse(
            "target_prefixes", f"{len(prefixes)} given for {len(request.texts)} texts; one each, or none"
        )
        return ()
    for index, prefix in enumerate(prefixes[: limits.max_text_count]):  # more texts are refused already
        _check_text(f"target_prefixes[{index}]", prefix, limits, findings)
    return prefixes or ("",) * len(request.texts)


def _check_output(output: OutputOptions, findings: Findings) -> OutputChoice:
    path, method = "output.alignment_method", output.alignment_method
    _check_choice(path, method, AlignmentMethod, AlignmentMethod.values(), findings)
    if method in _ALIGNMENT_METHODS and not output.include_alignments:
        findings.refuse(path, "has no meaning without output.include_alignments")
    return OutputChoice(
        include_tokens=output.include_tokens,
        include_alignments=output.include_alignments,
        alignment_method=_ALIGNMENT_METHODS.get(method),
    )


def _check_split(split: TextSplit, findings: Findings) -> bool:
    _check_choice("split", split, TextSplit, TextSplit.values(), findings)
    return split != TextSplit.TEXT_SPLIT_NONE


def _check_model(request: _ModelRequest, findings: Findings) -> ModelChoice:
    for name in ("source_language_code", "target_language_code"):
        code = getattr(request, name)
        if code and not is_well_formed(code):
            findings.refuse(name, f"{code[:64]!r} is not a BCP-47 language tag, such as en or pt-BR")
    return ModelChoice(
        name=request.model,
        source_language=request.source_language_code,
        target_language=request.target_language_code,
    )


def _check_given_translation(request: DumpAttentionRequest, findings: Findings) -> None:
    if request.split == TextSplit.TEXT_SPLIT_SENTENCES:
        findings.refuse(
            "split", "a given translation is that of one sentence; leave it unset or TEXT_SPLIT_NONE"
        )
    for descriptor, _ in request.options.ListFields():
        findings.refuse(f"options.{descriptor.name}", "has no meaning where the translation is given")


def _check_choice(
    path: str, value: int, enum: EnumTypeWrapper, served: Sequence[int], findings: Findings
) -> None:
    """Checks an enum field: 0 is unset, and proto3 lets unknown numbers through."""
    if value == 0:
        return
    known = enum.DESCRIPTOR.values_by_number
    if value not in known:
        findings.refuse(
            path, f"{value} is none of {', '.join(item.name for item in known.values() if item.number)}"
        )
    elif value not in served:
        findings.not_yet(path, f"{known[value].name} is not supported by this server; leave it unset")
