"""From the protocol's decoding options to the model's: every field is obeyed or refused."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from dragoman.v1 import DecodingOptions as OptionsMessage
from dragoman_model.options import MAX_LENGTH_PENALTY, DecodingOptions
from dragoman_server.findings import Findings
from dragoman_server.limits import CallLimits

# The model's names for what the contract calls otherwise; the others are the same.
_RENAMED = {"min_decoding_length": "min_length", "max_decoding_length": "max_length"}

_DEFAULTS = DecodingOptions()

_Rule = tuple[Callable[[float], bool], str]


def check_options(message: OptionsMessage, limits: CallLimits, findings: Findings) -> DecodingOptions:
    """Returns how the caller wants to search, or the defaults where ``findings`` grew."""
    given = message.ListFields()
    if not given:
        return _DEFAULTS
    rules = _rules(limits)
    asked: dict[str, Any] = {}
    sound = True
    for descriptor, value in given:
        name = descriptor.name
        if name in rules:
            is_allowed, allowed = rules[name]
            if not is_allowed(value):
                findings.refuse(f"options.{name}", f"{_shown(value)} given; must be {allowed}")
                sound = False
        asked[_RENAMED.get(name, name)] = value
    if not sound or not _check_together(asked, limits, findings):
        return _DEFAULTS
    return DecodingOptions(**asked)


@functools.lru_cache(maxsize=8)  # a server has one set of limits
def _rules(limits: CallLimits) -> dict[str, _Rule]:
    """Returns what each option may be by itself."""
    not_negative: _Rule = (lambda value: value >= 0, "at least 0")
    return {
        "beam_size": (lambda value: 1 <= value <= limits.max_beam_size, f"1 to {limits.max_beam_size}"),
        "num_hypotheses": (
            lambda value: 1 <= value <= limits.max_num_hypotheses,
            f"1 to {limits.max_num_hypotheses}",
        ),
        "length_penalty": (
            lambda value: abs(value) <= MAX_LENGTH_PENALTY,
            f"a number from -{MAX_LENGTH_PENALTY} to {MAX_LENGTH_PENALTY}",
        ),
        "repetition_penalty": (
            lambda value: math.isfinite(value) and value >= 1,
            "a number, at least 1",
        ),
        "no_repeat_ngram_size": not_negative,
        "min_decoding_length": not_negative,
        "max_decoding_length": (lambda value: value >= 1, "at least 1"),
        "sampling_topk": not_negative,
        "sampling_topp": (lambda value: 0 < value <= 1, "above 0 and at most 1"),
        "sampling_temperature": (lambda value: math.isfinite(value) and value > 0, "a number above 0"),
    }


def _check_together(asked: dict[str, Any], limits: CallLimits, findings: Findings) -> bool:
    """Checks what options must be beside each other; each is sound by itself."""
    beam_size, num_hypotheses = asked.get("beam_size", 1), asked.get("num_hypotheses", 1)
    min_length, max_length = asked.get("min_length", 0), asked.get("max_length")
    rows = max(beam_size, num_hypotheses)
    is_sampling = asked.get("sampling_topk", 1) != 1
    before = len(findings.invalid)
    if max_length is not None and min_length > max_length:
        findings.refuse(
            "options.min_decoding_length", f"{min_length} given; more than max_decoding_length {max_length}"
        )
    if is_sampling and beam_size > 1:
        findings.refuse(
            "options.beam_size", f"{beam_size} given; must be 1 when sampling (sampling_topk is not 1)"
        )
    if not is_sampling and num_hypotheses > beam_size:
        findings.refuse(
            "options.num_hypotheses",
            f"{num_hypotheses} given; at most beam_size, {beam_size}, unless sampling_topk says to sample",
        )
    if rows > limits.max_sentence_rows:
        name = "beam_size" if beam_size == rows else "num_hypotheses"
        findings.refuse(
            f"options.{name}",
            f"{rows} given; one sentence may take at most {limits.max_sentence_rows} rows of the batch",
        )
    return len(findings.invalid) == before


def _shown(value: float) -> str:
    """Returns an integer in full and any other number in six digits."""
    return str(value) if isinstance(value, int) else f"{value:g}"
