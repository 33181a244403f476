"""What a GPU does in a function, recorded once and done again in one call.

Launching a kernel costs a CPU some microseconds, and a decoder step of a small model is some hundred kernels that take less than
that each. A CUDA graph launches them together, at the addresses and in the shapes that they were recorded with.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

import torch

Replay = Callable[[], None]

# A process can record one graph at a time.
_recording = threading.Lock()
# PyTorch has 32 streams and hands them out in turn, and what graphs of one stream share must outlive all of them (see `forget`):
# no two recorders that live have the same one.
_idle_streams: dict[torch.device, list[torch.cuda.Stream]] = defaultdict(list)


class Recorder(Protocol):
    """Records functions of tensors whose shapes and addresses don't change."""

    def record(self, function: Callable[[], None]) -> Replay:
        """Runs a function, records it, and returns what does the same again, on what its tensors then hold.

        Raises:
            RuntimeError: It can't be recorded here.
        """
        ...

    def forget(self) -> None:
        """Lets go of all that was recorded; it must not be replayed any more."""
        ...


class CudaRecorder:
    """Records CUDA graphs on one device.

    All of its graphs take their memory from one pool: none runs beside another, and none reads what another left there.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        idle = _idle_streams[device]
        self._stream = idle.pop() if idle else torch.cuda.Stream(device)
        weakref.finalize(self, idle.append, self._stream)
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: list[torch.cuda.CUDAGraph] = []

    def record(self, function: Callable[[], None]) -> Replay:
        """Runs a function, records it, and returns what does the same again, on what its tensors then hold."""
        graph = torch.cuda.CUDAGraph()
        with _recording, torch.cuda.device(self._device):
            current = torch.cuda.current_stream()
            try:
                # Once outside the graph, where libraries may load kernels and allocate what they work in; on the same stream,
                # since cuBLAS has a workspace for each.
                self._stream.wait_stream(current)
                with torch.cuda.stream(self._stream):
                    function()
                current.wait_stream(self._stream)
                # What other threads do meanwhile, for other models, is none of this recording's business.
                with torch.cuda.graph(
                    graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
                ):
                    function()
            finally:
                torch.cuda.set_stream(current)  # which a recording that fails leaves undone
        self._graphs.append(graph)
        return graph.replay

    def forget(self) -> None:
        """Lets go of all that was recorded; it must not be replayed any more.

        Never of some: with a graph PyTorch gives back the cuBLAS workspace of its stream, which the others of the stream use.
        """
        torch.cuda.synchronize(self._device)
        for graph in self._graphs:
            graph.reset()
        self._graphs.clear()
        self._pool = torch.cuda.graph_pool_handle()
