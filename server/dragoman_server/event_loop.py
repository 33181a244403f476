"""The event loop that the server and its engines' processes run on."""

from __future__ import annotations

import sys

# What a call costs beside its translation is half gRPC's, on the event loop, and a refusal is nothing else.
if sys.platform == "win32":  # uvloop isn't made for it
    from asyncio import new_event_loop, run
else:
    from uvloop import new_event_loop, run

__all__ = ["new_event_loop", "run"]
