"""Bulk translations through either client, and what the scripted server was sent."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from dragoman_client import (
    AsyncTranslator,
    BatchResult,
    Translator,
)
from tests.client.scripted_server import ScriptedServer

Run = Callable[..., list[BatchResult]]


def run_blocking(server: ScriptedServer, texts: Iterable[str], **settings: Any) -> list[BatchResult]:
    with Translator(server.address) as translator:
        return list(translator.translate_batch(texts, **settings))


def run_asyncio(server: ScriptedServer, texts: Iterable[str], **settings: Any) -> list[BatchResult]:
    async def run() -> list[BatchResult]:
        async with AsyncTranslator(server.address) as translator:
            return [result async for result in translator.translate_batch(texts, **settings)]

    return asyncio.run(run())


def sent(server: ScriptedServer) -> list[list[str]]:
    """What each call was sent."""
    return [
        [item.text for message in messages for item in message.items]
        for messages in server.script.batch_calls
    ]
