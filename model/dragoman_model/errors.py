"""Everything that ``dragoman_model`` raises for a mistake that is not its own.

::

    ModelError
    ├── ModelDirectoryError       a model directory or file is missing, truncated or foreign
    │   └── TokenizerError        its tokenizer cannot be read
    ├── DeviceError               the wished device or precision is not to be had here
    ├── SentenceTooLongError      a sentence has more tokens than the model takes
    ├── PrefixTooLongError        a forced start leaves no room for a translation
    ├── PieceError                a given piece is none that a translation has there
    ├── CacheFullError            a row has taken as many steps as the model's limit
    ├── UnknownPositionError      a sequence is longer than the positions that a model has learnt
    └── TrainingError             a training run cannot start or go on
        ├── RecipeError           a recipe says something that it may not
        ├── DownloadError         a file cannot be had, or is not the file that the recipe means
        └── CorpusError           a corpus file is not laid out as the recipe says

A message has what was seen, what is allowed and what to do.
"""


class ModelError(Exception):
    """Root of the tree."""


class ModelDirectoryError(ModelError):
    """A model directory is missing, truncated or foreign; the message names the file and the reason."""


class TokenizerError(ModelDirectoryError):
    """A tokenizer file cannot be read, or its special ids are not where the model expects them."""


class DeviceError(ModelError):
    """The device or the precision asked for is not available on this machine."""


class SentenceTooLongError(ModelError):
    """A sentence is longer than the model can take.

    Attributes:
        sentence_index: Which sentence of the text, from 0.
        length: Its length in tokens, EOS included.
        limit: The longest length that the model takes, EOS included.
        text_index: Which of several texts, from 0; None where there was one alone.
    """

    def __init__(self, sentence_index: int, length: int, limit: int) -> None:
        super().__init__(
            f"sentence {sentence_index + 1} has {length} tokens, but the model takes at most {limit} "
            "(the end-of-sentence token included); split the sentence"
        )
        self.sentence_index = sentence_index
        self.length = length
        self.limit = limit
        self.text_index: int | None = None


class PrefixTooLongError(ModelError):
    """What a translation shall start with leaves no room for the rest.

    Attributes:
        length: Its length in tokens.
        limit: The longest that is allowed.
        text_index: Which of several texts it belongs to, from 0; None where there was one alone.
    """

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(
            f"the target prefix has {length} tokens, but at most {limit} are allowed; shorten it"
        )
        self.length = length
        self.limit = limit
        self.text_index: int | None = None


class PieceError(ModelError):
    """A piece is none that a translation can have where it stands.

    Attributes:
        index: Which of the pieces, from 0.
    """

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index


class CacheFullError(ModelError):
    """A decoder cache already holds as many steps as the model can take."""


class UnknownPositionError(ModelError):
    """A sequence is longer than any for which the model has learnt positions."""


class TrainingError(ModelError):
    """A training run cannot start or go on."""


class RecipeError(TrainingError):
    """A recipe is not valid; the message names the file, the key, what was seen and what is allowed."""


class DownloadError(TrainingError):
    """A file cannot be had, or is not the one that the recipe means; the message names it."""


class CorpusError(TrainingError):
    """A corpus file is not laid out as the recipe says; the message names the file and the line."""
