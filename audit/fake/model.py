"""Model: seeded toy logits, a pure function of the seed and the whole token context.

In: a seed, the context, and a salt that stands for how the batch was shaped. Out: a `Row` of float32 numbers. The
numbers mean nothing; what they share with a real model is that one changed token changes all of them, that the
same context always gives the same ones, and that their logprobs are float32. Unlike llama-server's, the logprobs do
not depend on how many of them are asked for.
"""

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

__all__ = ["Row", "ToyModel", "row_of"]

_STD = 2.0  # of the logits: the best of 512 tokens then has a probability of a few percent to a half
_NOISE = 1e-6  # of a jittered logit, absolute: some ULP of a usual logprob, so hardly ever another order
_ROWS_MAX = 2048  # rows kept in memory: about 20 MB at 512 ids


@dataclass(frozen=True, slots=True)
class Row:
    """The numbers of one position.

    Attributes:
        logits: shape (vocabulary,), float32.
        logprobs: shape (vocabulary,), float32 (float64 where a fault wants it), nats, before any sampling.
        order: shape (vocabulary,), token ids by descending logprob, then ascending id.
    """

    logits: npt.NDArray[np.float32]
    logprobs: npt.NDArray[np.float32] | npt.NDArray[np.float64]
    order: npt.NDArray[np.intp]


def row_of(logits: npt.NDArray[np.float32]) -> Row:
    """Compute the logprobs of logits, in float32 throughout."""
    shifted = logits - logits.max()
    logprobs = shifted - np.log(np.exp(shifted).sum(dtype=np.float32))
    return Row(logits=logits, logprobs=logprobs, order=np.argsort(-logprobs, kind="stable"))


class ToyModel:
    """Logits by hash: no weights, no state but a cache of recent rows.

    Args:
        vocabulary: count of token ids.
    """

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        self._rows: OrderedDict[tuple[bytes, int], Row] = OrderedDict()

    def row(self, context: bytes | bytearray, *, seed: int, salt: int = 0) -> Row:
        """Return the row that follows a context.

        Args:
            context: the token ids so far as little-endian int32.
            seed: which toy model.
            salt: 0 for the model's own numbers; any other value moves each logit by its own rounding noise.
        """
        key = blake2b(context, digest_size=16, key=seed.to_bytes(16, "little")).digest()
        row = self._rows.get((key, salt))
        if row is None:
            row = self._rows[key, salt] = self._compute(key, salt)
            if len(self._rows) > _ROWS_MAX:
                self._rows.popitem(last=False)
        return row

    def _compute(self, key: bytes, salt: int) -> Row:
        logits = self._normal(key) * np.float32(_STD)
        if salt:
            noise = self._normal(blake2b(key, digest_size=16, key=salt.to_bytes(16, "little")).digest())
            logits = logits + noise * np.float32(_NOISE)
        return row_of(logits)

    def _normal(self, key: bytes) -> npt.NDArray[np.float32]:
        generator = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
        return generator.standard_normal(self._vocabulary, dtype=np.float32)
