"""A recorder that keeps, on a CPU, to what a CUDA graph is held to.

It writes down every operation on tensors while a function runs, and does them again with the same numbers, at the same
addresses. What Python decides, and what it reads from lists, is as it was when it was recorded.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

# They wait for the device, or take memory whose size depends on what it holds; a graph can't.
FORBIDDEN = {"_local_scalar_dense", "nonzero", "masked_select", "unique_dim", "_unique2"}


class TapeRecorder:
    """Stands where `CudaRecorder` would.

    Attributes:
        num_recorded: Functions recorded so far.
        num_replayed: Replays so far.
        num_held: Recordings that have not been forgotten.
        fails_at: Of the functions to be recorded, from 0, the one that fails; None is none.
    """

    def __init__(self, fails_at=None):
        self.num_recorded = self.num_replayed = self.num_held = 0
        self.fails_at = fails_at
        self._generation = 0

    def record(self, function):
        function()
        if self.num_recorded == self.fails_at:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.num_recorded += 1
        self.num_held += 1
        tape, generation = Tape(), self._generation
        with tape:
            function()

        def replay():
            assert generation == self._generation, "replayed what was forgotten"
            self.num_replayed += 1
            tape.play()

        return replay

    def forget(self):
        self.num_held = 0
        self._generation += 1


class Tape(TorchDispatchMode):
    """Every operation in the context, with its tensors."""

    def __init__(self):
        super().__init__()
        self._operations = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        assert name not in FORBIDDEN, f"{name} can't be in a graph"
        out = func(*args, **kwargs)
        read, written = tensors(args, kwargs), tensors(out)
        if name == "lift_fresh":  # a tensor made from Python's numbers
            raise AssertionError("a number would have to be copied to the device")
        if any(index.dtype in (torch.bool, torch.uint8) for index in read[1:] if name.startswith("index")):
            raise AssertionError(f"{name} by a mask has a size that depends on it")
        places = {tensor.untyped_storage().data_ptr() for tensor in read}
        views = [tensor.untyped_storage().data_ptr() in places for tensor in written]
        if func._schema.is_mutable or not all(views):  # a view is nothing but an address
            fresh = [tensor for tensor, is_view in zip(written, views) if not is_view]
            self._operations.append((func, args, kwargs, fresh))
        return out

    def play(self):
        for *_, fresh in self._operations:
            for tensor in fresh:  # nothing of an earlier replay may be read
                tensor.fill_(torch.nan if tensor.is_floating_point() else -1)
        for func, args, kwargs, fresh in self._operations:
            for held, new in zip(fresh, tensors(func(*args, **kwargs)), strict=bool(fresh)):
                held.copy_(new)


def tensors(*values):
    return [leaf for leaf in tree_flatten(values)[0] if isinstance(leaf, torch.Tensor)]
