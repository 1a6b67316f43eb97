"""What was read before: values by a hash of the texts they belong to, the least used forgotten first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from threading import Lock
from typing import Final, final

from clickprism.errors import SettingError
from clickprism.types import Float32

ENTRY: Final = 200  # bytes that an entry takes beside its value: the key, the places in two tables


@final
class TextCache:
    """Vectors by texts, at most so many bytes of them; several threads may use it at a time.

    Keys are BLAKE2b hashes of 128 bits of the texts and of the model's version: texts are not kept, and no model is
    given what another one read.

    >>> import numpy as np
    >>> cache = TextCache("3f2a", most=10_000)
    >>> keys = cache.keys("grapes", ["grape juice", "walking"])
    >>> cache.put(keys[:1], [np.array([0.5], np.float32)])
    >>> cache.get(keys), cache.hits, cache.misses
    ([array([0.5], dtype=float32), None], 1, 1)
    """

    def __init__(self, version: str, *, most: int) -> None:
        if most < 0:
            raise SettingError("most", most, "be 0 bytes or more")
        self._version, self._most, self._held = version.encode(), most, 0
        self._values: OrderedDict[bytes, Float32] = OrderedDict()
        self._lock = Lock()
        self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self._values)

    @property
    def held(self) -> int:
        """Bytes that are taken, about."""
        return self._held

    def keys(self, first: str, others: Iterable[str]) -> list[bytes]:
        """The key of each pair of texts; the first is hashed once."""
        text = first.encode("utf-8", "surrogatepass")
        start = blake2b(self._version + len(text).to_bytes(8, "little") + text, digest_size=16)
        found = []
        for other in others:
            each = start.copy()
            each.update(other.encode("utf-8", "surrogatepass"))
            found.append(each.digest())
        return found

    def get(self, keys: Sequence[bytes]) -> list[Float32 | None]:
        """The value of each key, None where it is not known; those that are count as used."""
        with self._lock:
            found = [self._values.get(key) for key in keys]
            for key, value in zip(keys, found, strict=True):
                if value is not None:
                    self._values.move_to_end(key)
            known = sum(value is not None for value in found)
            self.hits += known
            self.misses += len(keys) - known
        return found

    def put(self, keys: Sequence[bytes], values: Sequence[Float32]) -> None:
        """Remember values; forget those used longest ago where they take too much."""
        with self._lock:
            for key, value in zip(keys, values, strict=True):
                old = self._values.pop(key, None)
                self._held += value.nbytes + ENTRY - (0 if old is None else old.nbytes + ENTRY)
                self._values[key] = value
            while self._held > self._most:
                _, gone = self._values.popitem(last=False)
                self._held -= gone.nbytes + ENTRY
