"""Attention of a share of the translations, looked at for the metrics after they were answered.

Nobody waits for it: a call is answered when its texts are translated, in time for its deadline or not, whether they are looked at or
not.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dragoman_model.plan import AttentionOutput, FinishedSentence
from dragoman_model.translation import PreparedText
from dragoman_server.catalogue import ServedModel
from dragoman_server.errors import CallError
from dragoman_server.logs import current_call, describe_exception, log_event
from dragoman_server.request import Call
from dragoman_server.rpcs.work import look_at_text, off_loop
from dragoman_server.sentences import attend_to

logger = logging.getLogger(__name__)

# Texts that wait to be looked at.
MAX_WAITING = 64


@dataclass(frozen=True)
class _Text:
    """A text that is to be looked at, and the call that it was translated in."""

    prepared: PreparedText
    results: Sequence[FinishedSentence]
    request_id: str


class AttentionSample:
    """Looks at some of a model's translations, one sentence after another, so that no step computes more than one for it.

    Texts that come while `MAX_WAITING` wait are passed over: where the model is that busy, the answers have it.
    """

    def __init__(self, served: ServedModel) -> None:
        self._served = served
        self._waiting: deque[_Text] = deque()
        self._looking: asyncio.Task[None] | None = None

    def offer(self, prepared: PreparedText, results: Sequence[FinishedSentence]) -> None:
        """Lets chance decide whether a text is looked at, and returns at once.

        Args:
            prepared: The text.
            results: What its sentences were translated to.
        """
        # Nobody can guess from a translation whether it was looked at, so that no seed is needed.
        is_taken = bool(results) and random.random() < self._served.attention_sample_share
        if is_taken and len(self._waiting) < MAX_WAITING:
            self._waiting.append(_Text(prepared, results, current_call.get().request_id))
            if self._looking is None:
                self._looking = asyncio.create_task(self._look_at_all())

    async def _look_at_all(self) -> None:
        while self._waiting:
            try:
                await self._look_at(self._waiting.popleft())
            except CallError:
                pass  # the engine has said why
            except Exception as error:
                log_event(
                    logger,
                    logging.ERROR,
                    "attention sample failed",
                    model=self._served.name,
                    **describe_exception(error),
                )
        self._looking = None

    async def _look_at(self, text: _Text) -> None:
        engine = self._served.engine
        looked_at = []
        for source_ids, finished in zip(text.prepared.source_ids, text.results, strict=True):
            call = Call(
                work=(attend_to(source_ids, finished),),
                arrived=engine.clock(),
                request_id=text.request_id,
                is_sample=True,
            )
            (attention,) = await engine.submit(call)
            assert isinstance(attention, AttentionOutput)
            # The mean is all that is looked at; every head of every sentence could be gigabytes.
            attention = replace(attention, cross=attention.cross_mean[None, None])
            looked_at.append(replace(finished, attention=attention))
        await off_loop(len(text.prepared.text), lambda: look_at_text(self._served, text.prepared, looked_at))
