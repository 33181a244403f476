"""The shape of a model, as ``config.json`` holds it."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dragoman_model.alignment_config import AlignmentConfig

NormPlacement = Literal["pre", "post"]
Activation = Literal["relu", "gelu", "swish"]
EncoderAttention = Literal["full", "window", "favor"]
CrossAttention = Literal["dot", "additive"]
DecoderAttention = Literal["full", "window"]
SinusoidLayout = Literal["interleaved", "concatenated"]
Positions = Literal["sinusoidal", "learned", "rotary", "relative"]

FORMAT_VERSION = 1
MAX_LENGTH = 65_536  # tokens; bounds the table of positions


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Everything that fixes a model's computation, beside its weights.

    Attributes:
        language_pairs: (source, target) language codes, BCP-47, that the model translates.
        target_language_tokens: For each target language of a model with several, the vocabulary piece that leads the
            source sentence; empty for a model of one pair.
        source_vocab_size: Rows of the source embedding.
        target_vocab_size: Rows of the target embedding and of the output projection.
        shared_vocabulary: Source and target share one vocabulary and one embedding.
        tie_output: The output projection is the target embedding (Press and Wolf 2017).
        output_bias: The output projection adds a bias.
        d_model: Width D of every position.
        d_ff: Inner width F of the feed-forward blocks.
        num_heads: Attention heads H; d_model must be a multiple.
        num_encoder_layers: Encoder layers.
        num_decoder_layers: Decoder layers.
        norm: Layer normalisation after each residual sum ("post", Vaswani et al. 2017) or before each block with one
            more at the stack's end ("pre", Xiong et al. 2020).
        layer_norm_eps: Added to the variance in layer normalisation.
        activation: Non-linearity of the feed-forward blocks.
        scale_embeddings: Embeddings are multiplied by sqrt(d_model) (Vaswani et al. 2017, section 3.4).
        positions: How the model knows where a token stands: "sinusoidal" or "learned" vectors added to the embeddings,
            queries and keys that turn with their position ("rotary"), or scores that depend on how far a key is from
            its query ("relative").
        max_relative_distance: With relative positions, the distance beyond which all keys count as equally far.
        sinusoid_layout: Sines and cosines "interleaved" (the paper) or in two halves, "concatenated" (Marian).
        encoder_attention: What a source position sees: all of them ("full", Vaswani et al. 2017), those near it
            ("window", Beltagy et al. 2020), or all of them by an estimate in linear time ("favor", Choromanski et al. 2021).
        decoder_attention: What a target position sees of what was written: all ("full"), or what is near ("window"), and
            then serving keeps no more than that.
        cross_attention: How the decoder scores the source: by scaled "dot" products (Vaswani et al. 2017) or by an
            "additive" network (Bahdanau et al. 2015).
        attention_window: Positions fewer than this many steps away are near: so many of what was written, in the source
            one less on the other side, too. 0 without a window.
        attention_features: Random features of "favor" for each head; more come closer to "full". 0 without it.
        dropout: Share of units dropped in training, [0, 1); 0 is off.
        max_source_length: Longest source sentence in tokens, end-of-sentence included.
        max_target_length: Longest translation in tokens, end-of-sentence included.
        pad_id: Padding.
        bos_id: Begin-of-sentence.
        eos_id: End-of-sentence.
        unk_id: Unknown piece.
        decoder_start_id: What the decoder reads first.
        alignment: Which cross-attention links words; None is the mean of every head of every layer, naive.
    """

    language_pairs: tuple[tuple[str, str], ...]
    source_vocab_size: int
    target_vocab_size: int
    target_language_tokens: Mapping[str, str] = dataclasses.field(default_factory=dict)
    shared_vocabulary: bool = True
    tie_output: bool = True
    output_bias: bool = False
    d_model: int = 256
    d_ff: int = 1024
    num_heads: int = 4
    num_encoder_layers: int = 4
    num_decoder_layers: int = 2
    norm: NormPlacement = "pre"
    layer_norm_eps: float = 1e-5
    activation: Activation = "relu"
    scale_embeddings: bool = True
    positions: Positions = "sinusoidal"
    max_relative_distance: int = 16
    sinusoid_layout: SinusoidLayout = "interleaved"
    encoder_attention: EncoderAttention = "full"
    decoder_attention: DecoderAttention = "full"
    cross_attention: CrossAttention = "dot"
    attention_window: int = 0
    attention_features: int = 0
    dropout: float = 0.1
    max_source_length: int = 256
    max_target_length: int = 256
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    unk_id: int = 3
    decoder_start_id: int = 1
    alignment: AlignmentConfig | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_type(field.name, getattr(self, field.name), _ANNOTATIONS[field.name])
        _check_languages(self.language_pairs, self.target_language_tokens)
        positive = (
            "source_vocab_size", "target_vocab_size", "d_model", "d_ff", "num_heads",
            "num_encoder_layers", "num_decoder_layers", "max_source_length", "max_target_length",
            "max_relative_distance",
        )  # fmt: skip
        for name in positive:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 1 or more")
        for name in ("max_source_length", "max_target_length", "max_relative_distance"):
            if getattr(self, name) > MAX_LENGTH:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at most {MAX_LENGTH}")
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model {self.d_model} is not a multiple of num_heads {self.num_heads}")
        if self.d_model % 2:
            raise ValueError(f"d_model {self.d_model} is odd; sinusoidal positions need pairs")
        if self.positions == "rotary" and self.head_width % 2:
            raise ValueError(
                f"d_model {self.d_model} gives {self.num_heads} heads the odd width {self.head_width}; "
                "rotary positions need pairs"
            )
        if not 0 < self.layer_norm_eps < 1:
            raise ValueError(f"layer_norm_eps is {self.layer_norm_eps}; it must be above 0 and below 1")
        has_window = "window" in (self.encoder_attention, self.decoder_attention)
        _check_used("attention_window", self.attention_window, has_window, "a stack's attention is 'window'")
        has_features = self.encoder_attention == "favor"
        _check_used(
            "attention_features", self.attention_features, has_features, "encoder_attention is 'favor'"
        )
        if self.positions == "relative" and (self.encoder_attention, self.decoder_attention) != (
            "full",
            "full",
        ):
            raise ValueError(
                f"positions is 'relative', encoder_attention {self.encoder_attention!r} and decoder_attention "
                f"{self.decoder_attention!r}; relative positions go with 'full' attention alone"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}; it must be at least 0 and below 1")
        if self.shared_vocabulary and self.source_vocab_size != self.target_vocab_size:
            raise ValueError(
                f"a shared vocabulary has one size, but source_vocab_size is {self.source_vocab_size} "
                f"and target_vocab_size {self.target_vocab_size}"
            )
        vocab_size = min(self.source_vocab_size, self.target_vocab_size)
        for name in ("pad_id", "bos_id", "eos_id", "unk_id", "decoder_start_id"):
            if not 0 <= getattr(self, name) < vocab_size:
                raise ValueError(
                    f"{name} is {getattr(self, name)}; it must lie within the vocabulary of {vocab_size}"
                )
        _check_alignment(self.alignment, self.num_decoder_layers, self.num_heads)
        if self.pad_id in (self.eos_id, self.unk_id):
            raise ValueError(
                f"pad_id {self.pad_id} is also eos_id or unk_id; a token would be taken for padding"
            )

    @property
    def head_width(self) -> int:
        """Width K of an attention head."""
        return self.d_model // self.num_heads

    @property
    def unwritten_ids(self) -> frozenset[int]:
        """Tokens that stand in no translation: padding, and begin-of-sentence where that is a token of its own."""
        return frozenset({self.pad_id, self.bos_id} - {self.eos_id, self.unk_id})

    @property
    def parameter_count(self) -> int:
        """Parameters of a model of this shape, each shared one counted once."""
        linear = self.d_model * (self.d_model + 1)
        attention, norm = 4 * linear, 2 * self.d_model
        feed_forward = 2 * self.d_model * self.d_ff + self.d_ff + self.d_model
        encoder = self.num_encoder_layers * (attention + feed_forward + 2 * norm)
        decoder = self.num_decoder_layers * (2 * attention + feed_forward + 3 * norm)
        vocabularies = self.target_vocab_size + (0 if self.shared_vocabulary else self.source_vocab_size)
        output = (0 if self.tie_output else self.target_vocab_size * self.d_model) + (
            self.target_vocab_size if self.output_bias else 0
        )
        final_norms = 2 * norm if self.norm == "pre" else 0
        return (
            vocabularies * self.d_model
            + encoder
            + decoder
            + output
            + final_norms
            + self._position_parameter_count
            + (self.num_decoder_layers * self.d_model if self.cross_attention == "additive" else 0)
        )

    @property
    def _position_parameter_count(self) -> int:
        if self.positions == "learned":
            return (self.max_source_length + self.max_target_length) * self.d_model
        if self.positions == "relative":  # the decoder sees nothing ahead
            offsets = (
                self.num_encoder_layers * (2 * self.max_relative_distance + 1)
                + self.num_decoder_layers * (self.max_relative_distance + 1)
            )  # fmt: skip
            return offsets * self.head_width
        return 0

    def to_json(self) -> str:
        """Returns the text of ``config.json``."""
        return json.dumps({"format_version": FORMAT_VERSION, **dataclasses.asdict(self)}, indent=2) + "\n"


# `from __future__ import annotations` leaves strings in Field.type; resolved once here.
_ANNOTATIONS: dict[str, Any] = {}


def _check_type(name: str, value: object, annotation: Any) -> None:
    origin = typing.get_origin(annotation)
    if origin is Literal:
        allowed = typing.get_args(annotation)
        if value not in allowed:
            raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, allowed))}")
    elif annotation in (int, float, bool):
        kinds = (int, float) if annotation is float else (annotation,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and annotation is not bool):
            raise ValueError(f"{name} is {value!r}; it must be of type {annotation.__name__}")


def _check_used(name: str, value: int, is_used: bool, where: str) -> None:
    """Refuses a size that is missing where it is used, or there where it isn't."""
    if not (1 <= value <= MAX_LENGTH if is_used else value == 0):
        raise ValueError(f"{name} is {value}; it must be 1 to {MAX_LENGTH} where {where}, and 0 elsewhere")


def _check_languages(pairs: object, tokens: object) -> None:
    if not isinstance(pairs, tuple) or not all(
        isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(code, str) and code for code in pair)
        for pair in pairs
    ):
        raise ValueError(
            f"language_pairs is {pairs!r}; it must hold (source, target) pairs of language codes"
        )
    if not pairs:
        raise ValueError("language_pairs is empty; name at least one (source, target) pair")
    if not isinstance(tokens, Mapping) or not all(
        isinstance(text, str) for item in tokens.items() for text in item
    ):
        raise ValueError(
            f"target_language_tokens is {tokens!r}; it must give a vocabulary piece for each language code"
        )


def _check_alignment(alignment: object, num_layers: int, num_heads: int) -> None:
    if alignment is None:
        return
    if not isinstance(alignment, AlignmentConfig):
        raise ValueError(f"alignment is {alignment!r}; it must have a layer, heads and a method, or be null")
    try:
        alignment.check_shape(num_layers, num_heads)
    except ValueError as error:
        raise ValueError(f"alignment: {error}") from None


_ANNOTATIONS.update(typing.get_type_hints(ModelConfig))
