"""Random numbers that depend on what they are for and on nothing else."""

from __future__ import annotations

import hashlib
import struct

from dragoman_model.plan import Sequence


class SentenceNoise:
    """The noise of one sentence's samples: a hash of (seed, source, hypothesis, step).

    No generator runs along, so that a seed gives the same samples whatever else is being decoded.
    """

    def __init__(self, sequence: Sequence) -> None:
        seed = sequence.options.seed
        assert seed is not None
        source_ids = sequence.source_ids
        self._hash = hashlib.blake2b(struct.pack(f"<q{len(source_ids)}I", seed, *source_ids), digest_size=4)

    def at(self, hypothesis: int, step: int) -> float:
        """Returns a number drawn evenly from [0, 1), in steps of 2^-32."""
        digest = self._hash.copy()
        digest.update(struct.pack("<II", hypothesis, step))
        return float(int.from_bytes(digest.digest(), "little")) / 2**32
