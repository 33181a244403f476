"""How long a translation may become."""

from __future__ import annotations

from dragoman_model.config import ModelConfig
from dragoman_model.errors import PrefixTooLongError
from dragoman_model.options import DecodingOptions


def default_max_length(config: ModelConfig, source_length: int) -> int:
    """Returns how many target tokens a sentence may take, end-of-sentence not counted.

    min(the model's limit, 10 + 2 × source tokens): a translation three times as long as its source is a loop.
    """
    return min(config.max_target_length - 1, 10 + 2 * source_length)


def max_length_of(
    config: ModelConfig, options: DecodingOptions, source_length: int, prefix_length: int = 0
) -> int:
    """Returns how many target tokens a sentence may take, end-of-sentence not counted: by its options, or the default.

    A minimum or a prefix that leaves the default no room raises it; the model's own limit holds in any case.

    Raises:
        PrefixTooLongError: The prefix alone is as long.
    """
    length = options.max_length
    if length is None:
        default = default_max_length(config, source_length)
        length = max(default, options.min_length, prefix_length + 1)
    length = min(length, config.max_target_length - 1)
    if prefix_length >= length:
        raise PrefixTooLongError(prefix_length, length - 1)
    return length
