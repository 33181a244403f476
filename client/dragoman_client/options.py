"""How the server searches for a translation, cuts a text and links words."""

import enum
from dataclasses import dataclass


class Split(enum.Enum):
    """How a text is cut into sentences before it is translated.

    Attributes:
        SENTENCES: At line breaks and sentence ends; what stands between comes back as it was.
        NONE: The text is one sentence.
    """

    SENTENCES = "sentences"
    NONE = "none"


class AlignmentMethod(enum.Enum):
    """How words are linked from cross-attention.

    Attributes:
        NAIVE: The row in which the word is predicted.
        SHIFTED: The row in which the word is the decoder's input.
    """

    NAIVE = "naive"
    SHIFTED = "shifted"


@dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """How to search for the translation; a field that is None takes the server's default.

    A server refuses what it cannot do yet with :class:`~dragoman_client.InvalidRequestError`, naming the field; it
    never ignores an option.

    Attributes:
        beam_size: Beams kept at each step; 1 is greedy search.
        num_hypotheses: Hypotheses returned, 1 to ``beam_size``; when sampling, samples drawn.
        length_penalty: Exponent a in score / length^a by which hypotheses are ranked; 0 ranks by plain score.
        repetition_penalty: Divides the score of tokens already produced, at least 1; 1 is off.
        no_repeat_ngram_size: No n-gram of this many tokens occurs twice, numbers of the source aside; 0 is off.
        min_decoding_length: Target tokens before end-of-sentence may come; 0 is off.
        max_decoding_length: Target tokens of a sentence at most, without end-of-sentence.
        sampling_topk: Samples from this many likeliest tokens; 1 is off, 0 samples from all.
        sampling_topp: Samples from the likeliest tokens that hold this much probability, above 0 to 1; 1 is off.
        sampling_temperature: Divides the logits before sampling, above 0; 1 is off.
        keep_numbers: Where a sentence has digits, every number written is one of its own, as often as it stands there at most.
        seed: Makes sampling repeatable.
    """

    beam_size: int | None = None
    num_hypotheses: int | None = None
    length_penalty: float | None = None
    repetition_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    min_decoding_length: int | None = None
    max_decoding_length: int | None = None
    sampling_topk: int | None = None
    sampling_topp: float | None = None
    sampling_temperature: float | None = None
    keep_numbers: bool | None = None
    seed: int | None = None
