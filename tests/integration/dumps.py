"""DumpAttention's stream, read and checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dragoman.v1 import AttentionHeader, DumpAttentionRequest, TensorType
from tests.integration.servers import RunningServer

_DTYPES = {
    TensorType.TENSOR_TYPE_FLOAT32: "<f4",
    TensorType.TENSOR_TYPE_FLOAT16: "<f2",
    TensorType.TENSOR_TYPE_UINT8: "u1",
    TensorType.TENSOR_TYPE_INT32: "<i4",
}


@dataclass
class Dump:
    """What came of one sentence.

    Attributes:
        header: Its header.
        data: The bytes of each tensor.
    """

    header: AttentionHeader
    data: list[bytearray] = field(default_factory=list)

    @property
    def weights(self) -> np.ndarray[Any, Any]:
        """The only tensor."""
        (found,) = self.tensors.values()
        return found

    @property
    def tensors(self) -> dict[str, np.ndarray[Any, Any]]:
        """All tensors, by name."""
        found = {}
        for info, data in zip(self.header.tensors, self.data, strict=True):
            assert len(data) == info.size_bytes
            assert len(info.axes) == len(info.shape)
            found[info.name] = np.frombuffer(bytes(data), _DTYPES[info.type]).reshape(info.shape)
        return found


async def dump(server: RunningServer, **fields: Any) -> list[Dump]:
    """Reads the whole stream and checks that its parts come in order, without gaps, in bounded pieces."""
    dumps: list[Dump] = []
    async for response in server.stub.DumpAttention(DumpAttentionRequest(**fields), timeout=30):
        assert response.ByteSize() < 1 << 20
        if response.WhichOneof("part") == "header":
            tensors = response.header.tensors
            dumps.append(Dump(response.header, [bytearray() for _ in tensors]))
            last = 0
        else:
            chunk = response.chunk
            assert chunk.tensor_index >= last
            last = chunk.tensor_index
            assert chunk.offset_bytes == len(dumps[-1].data[last])
            dumps[-1].data[last] += chunk.data
    return dumps
