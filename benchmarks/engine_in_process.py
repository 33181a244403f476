"""Our server with its model in a process of its own, to compare with the thread that it ships with.

    python benchmarks/engine_in_process.py --listen 127.0.0.1:50051        # takes dragoman-server's options

Plans and outputs are plain data, so a pipe can carry them: the engine's loop, its scheduler and gRPC stay in the server, which
waits for each step without holding the interpreter's lock, and the model has an interpreter to itself.
"""

from __future__ import annotations

import multiprocessing
import signal
from multiprocessing.connection import Connection
from typing import Any

from dragoman_model.batch import RunningBatch
from dragoman_server import app, command


class RemoteBatch:
    """A `RunningBatch` at the other end of a pipe.

    The process is forked before gRPC starts any thread, and shares the weights with the server.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, far_end = context.Pipe()
        self._process = context.Process(
            target=_serve_batch, args=(far_end, self._pipe, arguments, options), daemon=True
        )
        self._process.start()
        far_end.close()
        self.kernels: str = self._call("kernels")

    def run(self, plan: Any) -> Any:
        return self._call("run", plan)

    def clear(self) -> None:
        self._call("clear")

    def _call(self, name: str, *arguments: Any) -> Any:
        self._pipe.send((name, arguments))
        result, error = self._pipe.recv()
        if error is not None:
            raise error
        return result

    def __del__(self) -> None:
        self._pipe.close()  # which ends the process


def _serve_batch(pipe: Connection, near_end: Connection, arguments: Any, options: Any) -> None:
    near_end.close()
    # The server's handlers, which it had before it forked, would write to a loop that isn't here.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    batch = RunningBatch(*arguments, **options)
    while True:
        try:
            name, values = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            found = getattr(batch, name)
            pipe.send((found(*values) if callable(found) else found, None))
        except Exception as error:
            pipe.send((None, error))


if __name__ == "__main__":
    app.RunningBatch = RemoteBatch  # type: ignore[misc,assignment]
    command.main()
