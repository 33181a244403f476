"""The text of a translation while it is being written."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman_model.text import SplitText
from dragoman_model.tokenizer import Tokenizer


class GrowingText:
    """What of a text's translation can't change any more, handed out piece by piece.

    Sentences come in their order: what is known of a later one waits until those before it are complete.

    Args:
        tokenizer: Writes the tokens.
        split: The text's sentences and what stands between them.
    """

    def __init__(self, tokenizer: Tokenizer, split: SplitText) -> None:
        self._tokenizer = tokenizer
        self._separators = split.separators
        self._token_ids: list[Sequence[int]] = [()] * len(split.sentences)
        self._is_complete = [False] * len(split.sentences)
        self._sentence = 0  # the first that is not handed out whole
        self._handed_out = ""  # of that one
        self._before = split.separators[0]

    def advance(self, sentence: int, token_ids: Sequence[int], *, is_complete: bool) -> None:
        """Takes what is sure of a sentence: all of its target tokens, or those that it will start with."""
        self._token_ids[sentence] = token_ids
        self._is_complete[sentence] = is_complete

    def take(self) -> str:
        """Returns what follows the text that was returned before; empty where nothing new is sure."""
        parts = [self._before]
        self._before = ""
        while self._sentence < len(self._token_ids):
            token_ids = self._token_ids[self._sentence]
            is_complete = self._is_complete[self._sentence]
            text = (self._tokenizer.decode if is_complete else self._tokenizer.decode_stable)(token_ids)
            assert text.startswith(self._handed_out)
            parts.append(text[len(self._handed_out) :])
            self._handed_out = text
            if not is_complete:
                break
            self._sentence, self._handed_out = self._sentence + 1, ""
            parts.append(self._separators[self._sentence])
        return "".join(parts)
