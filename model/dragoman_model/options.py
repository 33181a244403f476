"""How a translation is searched for."""

from __future__ import annotations

import dataclasses
import math
import secrets
from dataclasses import dataclass

# A wider exponent takes the powers of a model's longest length (`config.MAX_LENGTH`, 2^16) out of what a float holds.
MAX_LENGTH_PENALTY = 50


@dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """How to search for a sentence's translation; the defaults are greedy search that keeps numbers, with all else off.

    Lengths count target tokens, a forced prefix included.

    Attributes:
        beam_size: Hypotheses kept at each step, 1 or more; 1 is greedy search.
        num_hypotheses: Hypotheses returned, 1 to ``beam_size``; when sampling, samples drawn.
        length_penalty: Exponent α of Σ log p / L^α, by which hypotheses rank (L with end-of-sentence); 0 ranks by plain
            sums, and a negative one likes short hypotheses. At most ``MAX_LENGTH_PENALTY`` either way.
        repetition_penalty: Divides the positive logits of tokens already written and multiplies the negative ones
            (Keskar et al. 2019), 1 or more; 1 is off.
        no_repeat_ngram_size: No n-gram of this many tokens is written twice, but where a number of the source could not be
            written to its end otherwise; 0 is off.
        min_length: Tokens before end-of-sentence may come; 0 is off.
        max_length: Tokens at most, without end-of-sentence; None is the model's default for the sentence.
        sampling_topk: Samples from this many likeliest tokens; 1 is off, 0 samples from all. Needs ``beam_size`` 1.
        sampling_topp: Samples from the fewest likeliest tokens that hold this much probability, above 0; 1 is off.
        sampling_temperature: Divides the logits before sampling, above 0; 1 is off.
        keep_numbers: Where a sentence has digits, every number written is one of its own, as often as it stands there at most
            (`SourceNumbers`).
        seed: Makes sampling repeatable, 64 bits; None draws one.
    """

    beam_size: int = 1
    num_hypotheses: int = 1
    length_penalty: float = 1.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    min_length: int = 0
    max_length: int | None = None
    sampling_topk: int = 1
    sampling_topp: float = 1.0
    sampling_temperature: float = 1.0
    keep_numbers: bool = True
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, least in (
            ("beam_size", 1),
            ("num_hypotheses", 1),
            ("repetition_penalty", 1),
            ("no_repeat_ngram_size", 0),
            ("min_length", 0),
            ("sampling_topk", 0),
        ):
            _check(name, getattr(self, name), getattr(self, name) >= least, f"{least} or more")
        _check(
            "length_penalty",
            self.length_penalty,
            abs(self.length_penalty) <= MAX_LENGTH_PENALTY,
            f"from -{MAX_LENGTH_PENALTY} to {MAX_LENGTH_PENALTY}",
        )
        _check("sampling_topp", self.sampling_topp, 0 < self.sampling_topp <= 1, "above 0 and at most 1")
        _check("sampling_temperature", self.sampling_temperature, self.sampling_temperature > 0, "above 0")
        if self.max_length is not None:
            least = max(1, self.min_length)
            _check("max_length", self.max_length, self.max_length >= least, f"{least} or more")
        if self.seed is not None:
            _check("seed", self.seed, -(2**63) <= self.seed < 2**63, "a signed integer of 64 bits")
        if self.is_sampling:
            _check("beam_size", self.beam_size, self.beam_size == 1, "1 when sampling")
        else:
            fits = self.num_hypotheses <= self.beam_size
            _check("num_hypotheses", self.num_hypotheses, fits, f"at most beam_size, {self.beam_size}")

    @property
    def is_sampling(self) -> bool:
        """Whether tokens are drawn rather than the best ones taken."""
        return self.sampling_topk != 1

    @property
    def num_rows(self) -> int:
        """Rows of the batch that a sentence takes: one for each beam or sample."""
        return max(self.beam_size, self.num_hypotheses)

    def with_seed(self) -> DecodingOptions:
        """Returns options whose seed, where one counts, is set: these, or a copy with one drawn."""
        if self.seed is not None or not self.is_sampling:
            return self
        return dataclasses.replace(self, seed=secrets.randbits(63))


def _check(name: str, value: float, is_allowed: bool, allowed: str) -> None:
    if not (is_allowed and math.isfinite(value)):
        raise ValueError(f"{name} is {value}; it must be {allowed}")
