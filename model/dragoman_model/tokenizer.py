"""Text to token ids and back, and where in the text each token stands."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from dragoman_model.errors import PieceError, TokenizerError
from dragoman_model.numbers import DigitTokens, SourceNumbers
from dragoman_model.text import is_start_of_character, whole_characters

PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3
CAPITALS_PIECE = "<capitals>"  # a sentence in capitals is this mark and then its small letters
TOKENIZER_FILE = "tokenizer.model"

_MAX_OPEN_BYTES = 3  # of a character in UTF-8 that is not complete
_SPACE = "▁"  # SentencePiece writes a space as this, at the start of the word that follows


@dataclass(frozen=True)
class Piece:
    """A token and where it stands.

    Attributes:
        id: The token id.
        text: The vocabulary's piece, as in ``▁house`` or ``<0xF0>``.
        span: Half-open range of code points. Two spans of a text are disjoint or, where several pieces spell one
            character, equal; a piece that is only a space has an empty one. None for special tokens.
        special: Stands for no text, such as end-of-sentence.
    """

    id: int
    text: str
    span: tuple[int, int] | None
    special: bool = False


class Tokenizer:
    """The SentencePiece processors of a model: one for its source and one for its target, often the same.

    Where the vocabulary has a mark for it, A SENTENCE IN CAPITALS is read and written as that mark and the small letters,
    which the model knows well; capitals by themselves would be spelt in rare pieces, one or two letters each.

    Args:
        source: Reads the text to translate.
        target: Writes the translation.
    """

    def __init__(self, source: SentencePieceProcessor, target: SentencePieceProcessor) -> None:
        self.source = source
        self.target = target
        self._digits = DigitTokens(source, target)
        # Looked up once: each look costs as much as reading a word.
        self._source_mark, self._target_mark = _capitals_id(source), _capitals_id(target)
        self._silent = {PAD_ID, BOS_ID, EOS_ID, self._target_mark}

    @classmethod
    def load(cls, directory: Path) -> "Tokenizer":
        """Reads ``tokenizer.model``, which serves both sides.

        Raises:
            TokenizerError: The file is missing, truncated or foreign.
        """
        processor = _load_processor(directory / TOKENIZER_FILE)
        return cls(processor, processor)

    @property
    def vocab_size(self) -> int:
        """The number of target pieces."""
        return int(self.target.vocab_size())

    def encode(self, text: str) -> list[int]:
        """Returns the source token ids of ``text``, EOS last."""
        return _encode(self.source, self._source_mark, text)

    def encode_target(self, text: str) -> list[int]:
        """Returns the target token ids of ``text``, EOS last."""
        return _encode(self.target, self._target_mark, text)

    def encode_target_prefix(self, prefix: str, source_ids: Sequence[int]) -> list[int]:
        """Returns the target token ids that a translation which starts with ``prefix`` starts with.

        Of a source that is not in capitals the translation is not either, whatever its first word: no mark for "NATO".
        """
        marked = self._source_mark in source_ids
        ids = (
            self.encode_target(prefix)
            if marked
            else self.target.encode(whole_characters(prefix), out_type=int)
        )
        return [i for i in ids if i != EOS_ID]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns ``encode`` of each text, faster than one by one."""
        return _encode_batch(self.source, self._source_mark, texts)

    def encode_target_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns ``encode_target`` of each text, faster than one by one."""
        return _encode_batch(self.target, self._target_mark, texts)

    def numbers(self, source_ids: Sequence[int]) -> SourceNumbers | None:
        """Returns the numbers of a tokenised source; None where it holds none."""
        return self._digits.numbers(source_ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Returns the text of target token ids; special ones say nothing, bytes that are no character read U+FFFD."""
        text = str(self.target.decode([i for i in token_ids if i not in self._silent]))
        return text.upper() if self._in_capitals(token_ids) else text

    def decode_stable(self, token_ids: Sequence[int]) -> str:
        """Returns what ``decode`` gives of these target token ids whatever may follow them.

        That is all but the bytes of a character at their end that may still become whole.
        """
        tail = b""
        for index in range(len(token_ids) - 1, -1, -1):
            token_id = token_ids[index]
            if self.target.is_control(token_id):
                continue  # says nothing; the bytes around it belong together
            if not self.target.is_byte(token_id):
                break
            tail = bytes([int(self.target.id_to_piece(token_id)[1:-1], 16)]) + tail
            if is_start_of_character(tail):
                return self.decode(token_ids[:index])
            if len(tail) == _MAX_OPEN_BYTES:
                break
        return self.decode(token_ids)

    def source_pieces(self, text: str) -> list[Piece]:
        """Returns the tokens of ``encode(text)`` with their spans in ``text``."""
        return _pieces(self.source, self._source_mark, text)

    def given_target_pieces(self, text: str) -> list[Piece]:
        """Returns the tokens of ``encode_target(text)`` with their spans in ``text``, as for a translation given."""
        return _pieces(self.target, self._target_mark, text)

    def target_pieces(self, token_ids: Sequence[int]) -> tuple[str, list[Piece]]:
        """Returns ``decode(token_ids)`` and each token's span in it."""
        said = [i for i in token_ids if i not in self._silent]
        mapping = self.target.decode(said, return_type="offset_mapping")
        text, offsets = str(mapping["text"]), mapping["offsets"]
        if self._in_capitals(token_ids):
            text, offsets = _in_capitals(text, offsets)
        spoken = iter(
            _with_spans(said, [self.target.id_to_piece(i) for i in said], offsets, text, self.target)
        )
        pieces = [
            Piece(i, self.target.id_to_piece(i), None, special=True) if i in self._silent else next(spoken)
            for i in token_ids
        ]
        return text, pieces

    def target_ids(self, pieces: Sequence[str]) -> list[int]:
        """Returns the target token ids of a translation's pieces, as `target_pieces` gives them.

        Raises:
            PieceError: One isn't in the vocabulary, stands for nothing that is written, or ends the sentence before the others.
        """
        ids = []
        for index, piece in enumerate(pieces):
            token_id = int(self.target.piece_to_id(piece))
            if self.target.id_to_piece(token_id) != piece:  # what isn't known is the unknown piece
                raise PieceError(index, f"{piece[:64]!r} is not in the model's vocabulary")
            if token_id in (PAD_ID, BOS_ID):
                raise PieceError(index, f"{piece!r} stands in no translation")
            if token_id == EOS_ID and index < len(pieces) - 1:
                raise PieceError(
                    index, f"{piece!r} ends a sentence, and may only be the last; give one sentence"
                )
            ids.append(token_id)
        return ids

    def _in_capitals(self, token_ids: Sequence[int]) -> bool:
        """Returns whether target tokens begin with the mark; behind another token it says nothing."""
        return next((i == self._target_mark for i in token_ids if i not in (PAD_ID, BOS_ID)), False)


def _capitals_id(processor: SentencePieceProcessor) -> int | None:
    """Returns the id of the mark for capitals; None where the vocabulary has none."""
    found = int(processor.piece_to_id(CAPITALS_PIECE))
    return found if found != UNK_ID else None


def _in_small_letters(text: str) -> str | None:
    """Returns a text in capitals in small letters, or None if it is not one or would not come back as it was."""
    if not text.isupper() or sum(map(str.isupper, text)) < 2:  # one letter: "I", "A 5."
        return None
    small = text.lower()
    return small if len(small) == len(text) and small.upper() == text else None


def _in_capitals(text: str, offsets: Sequence[tuple[int, int]]) -> tuple[str, list[tuple[int, int]]]:
    """Returns ``text`` in capitals and the offsets there: ß becomes two letters."""
    letters = [letter.upper() for letter in text]
    starts = [0, *itertools.accumulate(map(len, letters))]
    return "".join(letters), [(starts[first], starts[end]) for first, end in offsets]


def _load_processor(path: Path) -> SentencePieceProcessor:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"{path}: cannot be read: {error.strerror}") from error
    processor = SentencePieceProcessor()
    try:
        loaded = content and processor.LoadFromSerializedProto(content)
    except RuntimeError as error:
        raise TokenizerError(f"{path}: is not a SentencePiece model, or is cut short") from error
    if not loaded:
        raise TokenizerError(f"{path}: is not a SentencePiece model, or is cut short")
    ids = (processor.pad_id(), processor.bos_id(), processor.eos_id(), processor.unk_id())
    expected = (PAD_ID, BOS_ID, EOS_ID, UNK_ID)
    if ids != expected:
        raise TokenizerError(
            f"{path}: its ids of pad, bos, eos and unk are {ids}, expected {expected}; it belongs to another model"
        )
    return processor


def _encode(processor: SentencePieceProcessor, mark: int | None, text: str) -> list[int]:
    # A batch of one would start a thread for it, which takes many times as long as the text.
    marks, letters = _as_read(mark, text)
    return [*marks, *processor.encode(letters, out_type=int), EOS_ID]


def _encode_batch(
    processor: SentencePieceProcessor, mark: int | None, texts: Sequence[str]
) -> list[list[int]]:
    read = [_as_read(mark, text) for text in texts]
    encoded = processor.encode([letters for _, letters in read], out_type=int, num_threads=1)
    return [[*marks, *ids, EOS_ID] for (marks, _), ids in zip(read, encoded, strict=True)]


def _pieces(processor: SentencePieceProcessor, mark: int | None, text: str) -> list[Piece]:
    # As many letters as the text has, so that spans are those of the text.
    marks, letters = _as_read(mark, text)
    mapping = processor.encode(letters, return_type="offset_mapping")
    return [
        *(Piece(i, CAPITALS_PIECE, None, special=True) for i in marks),
        *_with_spans(mapping["ids"], mapping["pieces"], mapping["offsets"], letters, processor),
        Piece(EOS_ID, processor.id_to_piece(EOS_ID), None, special=True),
    ]


def _as_read(mark: int | None, text: str) -> tuple[list[int], str]:
    """Returns the mark's id and the small letters of a text in capitals; of another one no id and itself."""
    small = None if mark is None else _in_small_letters(text)
    if mark is None or small is None:
        return [], whole_characters(text)
    return [mark], whole_characters(small)


def _with_spans(
    ids: Sequence[int],
    pieces: Sequence[str],
    offsets: Sequence[tuple[int, int]],
    text: str,
    processor: SentencePieceProcessor,
) -> list[Piece]:
    """Turns SentencePiece's ranges into spans.

    SentencePiece counts the space before a word to the word, and where several pieces spell one character, gives it to
    the last of them and nothing to the others.
    """
    spans: list[tuple[int, int]] = []
    following: tuple[int, int] | None = None
    for piece, (first, end) in zip(reversed(pieces), reversed(offsets), strict=True):
        start = first
        if piece.startswith(_SPACE):
            start = end if piece == _SPACE else _skip_spaces(processor, text, first, end)
        span = (start, end)
        if start == end and piece != _SPACE and following is not None and following[0] == end:
            span = following
        if span[0] < span[1]:
            following = span
        spans.append(span)
    spans.reverse()
    return [Piece(i, piece, span) for i, piece, span in zip(ids, pieces, spans, strict=True)]


def _skip_spaces(processor: SentencePieceProcessor, text: str, start: int, end: int) -> int:
    """Returns where the word in ``text[start:end]`` begins; what normalisation makes a space or nothing is no word."""
    while start < end and not text[start].isalnum():
        if processor.normalize(whole_characters(text[start])).strip(_SPACE):
            break
        start += 1
    return start
