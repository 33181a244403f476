"""A bulk translation as plain data: what was read, what is unanswered, what can be handed over. Neither waits nor locks."""

from collections.abc import Iterable, Iterator

import grpc

from dragoman.v1 import BatchItem, TranslateBatchRequest, TranslateBatchResponse
from dragoman_client.errors import (
    DragomanError,
    InvalidRequestError,
    OverloadedError,
    ServerError,
    UnavailableError,
    error_from_status,
)
from dragoman_client.requests import check_encodable
from dragoman_client.responses import read_translation
from dragoman_client.results import BatchResult

DEFAULT_MAX_PENDING = 512
"""Twice what a server works on of one call: while one half is translated, the other travels."""

DEFAULT_MAX_OUTAGE_SECONDS = 30.0

MAX_PENDING_CHARACTERS = 1 << 20
"""Keeps long texts from filling the memory; a single one may be longer."""

MAX_TEXT_BYTES = 900_000
"""Above any usual text limit. Every server reads a message of 1 MiB; what none might read would fail a whole call, and not
only its own text."""

MAX_ITEMS_PER_MESSAGE = 64
MAX_MESSAGE_CHARACTERS = 20_000

END_SECONDS = 1.0
"""How long a server that has answered everything may take to end the call itself: its log and its metrics then call it
a success."""

HELD_UP_SECONDS = 0.25
"""A timer that goes off so late was held up with the whole process, as by Ctrl-Z. The answers that came meanwhile have not been
looked at, so that it says nothing of the server."""

RETRYABLE = (UnavailableError, OverloadedError)
"""After these a text may be sent again: nobody else is to blame, and what a call does changes nothing."""


class Bulk:
    """The texts between the input and the caller, at most ``max_pending`` of them.

    Args:
        ordered: Hands results over in the order of the input; else as they come.
        max_pending: Texts read and not yet handed over, at most.
    """

    def __init__(self, *, ordered: bool, max_pending: int) -> None:
        if max_pending < 1:
            raise ValueError(f"max_pending is {max_pending}; give 1 or more")
        self._ordered = ordered
        self._max_pending = max_pending
        self._num_read = 0
        self._next_index = 0
        self._characters = 0
        self._unanswered: dict[int, BatchItem] = {}
        self._ready: dict[int, BatchResult] = {}

    @property
    def has_room(self) -> bool:
        """Whether another text may be read."""
        pending = len(self._unanswered) + len(self._ready)
        return pending < self._max_pending and (pending == 0 or self._characters < MAX_PENDING_CHARACTERS)

    @property
    def num_unanswered(self) -> int:
        """How many answers the server owes."""
        return len(self._unanswered)

    @property
    def unanswered(self) -> list[BatchItem]:
        """What the server owes an answer to, in the order of the input."""
        return list(self._unanswered.values())

    def add(self, text: str, target_prefix: str) -> BatchItem | None:
        """Takes the next text of the input.

        Returns:
            What to send; None where the text cannot be sent, which becomes its result.

        Raises:
            TypeError: It is no text.
        """
        index = self._num_read
        error = _check(text, target_prefix)
        self._num_read += 1
        self._characters += len(text)
        if error is not None:
            self._ready[index] = BatchResult(index, text, error=error)
            return None
        item = BatchItem(id=str(index), text=text, target_prefix=target_prefix)
        self._unanswered[index] = item
        return item

    def feed(self, response: TranslateBatchResponse, *, request_id: str) -> None:
        """Takes what the server answered.

        Raises:
            UnavailableError, OverloadedError: The server gives a text back undone; it stays unanswered.
            ServerError: The answer is to nothing that was asked.
        """
        given_back: DragomanError | None = None
        for result in response.results:
            item = (
                self._unanswered.get(int(result.id)) if result.id.isascii() and result.id.isdigit() else None
            )
            if item is None or result.WhichOneof("outcome") is None:
                raise ServerError(
                    f"the server answered to {result.id!r}, which it was not asked or did not say how"
                )
            error = None
            if result.HasField("error"):
                error = error_from_status(result.error, request_id=request_id)
                if isinstance(error, RETRYABLE):
                    given_back = error
                    continue
            index = int(result.id)
            del self._unanswered[index]
            self._ready[index] = BatchResult(
                index,
                item.text,
                None
                if error
                else read_translation(result.translation, response.model, response.model_digest),
                error,
                request_id,
                response.precision,
            )
        if given_back is not None:
            raise given_back

    def pop(self) -> BatchResult | None:
        """Returns the next result to hand over; None where there is none yet."""
        index = self._next_index if self._ordered else next(iter(self._ready), -1)
        result = self._ready.pop(index, None)
        if result is not None:
            self._next_index += 1
            self._characters -= len(result.source)
        return result


class MessageBuilder:
    """Puts the items of a call into messages of a good size.

    Args:
        header: What the first of them holds beside its items.
    """

    def __init__(self, header: TranslateBatchRequest) -> None:
        self._message = TranslateBatchRequest()
        self._message.CopyFrom(header)
        self._characters = 0

    def add(self, item: BatchItem) -> None:
        """Puts an item into the message."""
        self._message.items.append(item)
        self._characters += len(item.text) + len(item.target_prefix)

    @property
    def has_items(self) -> bool:
        """Whether there is anything to send."""
        return len(self._message.items) > 0

    @property
    def is_full(self) -> bool:
        """Whether the message should go."""
        return len(self._message.items) >= MAX_ITEMS_PER_MESSAGE or self._characters >= MAX_MESSAGE_CHARACTERS

    def take(self) -> TranslateBatchRequest:
        """Returns the message and begins the next."""
        message, self._message, self._characters = self._message, TranslateBatchRequest(), 0
        return message


class Outage:
    """How long to wait for a server that is away, and when to give up.

    A server that has not answered yet and does not exist is reported within a second; one that did, or that says it is
    busy, is waited for.

    Args:
        max_seconds: From the first failure after an answer.
    """

    def __init__(self, max_seconds: float) -> None:
        if not max_seconds >= 0:
            raise ValueError(f"max_outage_seconds is {max_seconds}; give 0, which gives up at once, or more")
        self._max_seconds = max_seconds
        self._answered = False
        self.end()

    def end(self) -> None:
        """The server answers."""
        self._since: float | None = None
        self._delay = _MIN_DELAY_SECONDS

    def answer(self) -> None:
        """The server has answered a text."""
        self._answered = True
        self.end()

    def delay(self, error: DragomanError, now: float) -> float:
        """Returns for how many seconds to wait before the next try.

        Raises:
            DragomanError: The error itself: another try makes no sense, or the time is up.
        """
        # A call that reaches a server in the moment in which that stops is cancelled there by gRPC, before any of its code runs.
        is_cut_off = error.code is grpc.StatusCode.CANCELLED and error.reason is None
        if not (isinstance(error, RETRYABLE) or is_cut_off):
            raise error
        if self._since is None:
            self._since = now
        is_new = not isinstance(error, OverloadedError) and not self._answered
        limit = min(self._max_seconds, _MAX_NEW_SECONDS) if is_new else self._max_seconds
        delay = error.retry_after_seconds or self._delay
        if now - self._since + delay > limit:
            raise error
        self._delay = min(2 * self._delay, _MAX_DELAY_SECONDS)
        return delay


_MIN_DELAY_SECONDS = 0.1
_MAX_DELAY_SECONDS = 2.0
_MAX_NEW_SECONDS = 1.0


def _check(text: str, target_prefix: str) -> InvalidRequestError | None:
    """Returns why the text cannot be sent."""
    try:
        check_encodable(text, "text")
        check_encodable(target_prefix, "target_prefix")
    except InvalidRequestError as error:
        return error
    size = len(text.encode()) + len(target_prefix.encode())
    if size > MAX_TEXT_BYTES:
        return InvalidRequestError(
            f"text of {size:,} bytes; at most {MAX_TEXT_BYTES:,} are sent in bulk",
            code=grpc.StatusCode.INVALID_ARGUMENT,
        )
    return None


def pair_prefixes(texts: Iterable[str], prefix: Iterable[str] | str | None) -> Iterator[tuple[str, str]]:
    """Yields each text with what its translation starts with.

    Raises:
        ValueError: There are fewer prefixes than texts.
    """
    if prefix is None or isinstance(prefix, str):
        for text in texts:
            yield text, prefix or ""
        return
    prefixes = iter(prefix)
    for text in texts:
        following = next(prefixes, None)
        if following is None:
            raise prefixes_end_early_error()
        yield text, following


def prefixes_end_early_error() -> ValueError:
    """Returns the error of a text without a prefix among others that have one."""
    return ValueError("fewer target prefixes than texts; one for each is needed")
