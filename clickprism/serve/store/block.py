"""The rows of one query as bytes, in the same form in every store: a header, document ids, float32 rows.

    magic (4) · documents (u32) · bytes of ids (u32) · fields (u32) · sum (u64) · ids · rows, each padded to 8 bytes

Ids are UTF-8, parted by a NUL, in the order of the rows. Where a query has more than `LARGE` documents they are 16-byte
digests in rising order instead, so that a few of very many are found without reading them all. `sum` is that of all
8-byte words behind it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from clickprism.errors import DataError
from clickprism.serve.store.base import Found, StoreInfo
from clickprism.types import Float32, Int64

LARGE: Final = 1000
KEY_BYTES: Final = 500
_HEADER: Final = struct.Struct("<4sIIIQ")
_NAMED: Final = b"cpN1"
_HASHED: Final = b"cpH1"
Buffer: TypeAlias = bytes | memoryview


def query_key(query_id: str) -> bytes:
    """What a query is found by: its id, or a digest of one that is too long for a key.

    >>> query_key("shoes"), len(query_key("x" * 9000))
    (b'qshoes', 33)
    """
    key = b"q" + query_id.encode()
    return key if len(key) <= KEY_BYTES else b"h" + blake2b(key, digest_size=32).digest()


def digests(document_ids: Sequence[str]) -> bytes:
    """16 bytes for each id."""
    return b"".join([blake2b(name.encode(), digest_size=16).digest() for name in document_ids])


def pack(document_ids: Sequence[str], rows: Float32) -> bytes:
    """The documents of one query, each once, with their rows, [n, L].

    >>> block = unpack(pack(["b", "a"], np.array([[1.0], [2.0]], np.float32)), fields=1, what="q")
    >>> block.places(["a", "c", "b"]).tolist(), block.rows.tolist()
    ([1, -1, 0], [[1.0], [2.0]])
    """
    if len(document_ids) > LARGE:
        magic, keys = _HASHED, np.frombuffer(digests(document_ids), "S16")
        order = np.argsort(keys)
        ids, rows = keys[order].tobytes(), rows[order]
    else:
        magic, ids = _NAMED, "\0".join(document_ids).encode()
    values = np.ascontiguousarray(rows, "<f4").tobytes()
    body = b"".join([ids, bytes(-len(ids) % 8), values, bytes(-len(values) % 8)])
    total = int(np.frombuffer(body, "<u8").sum(dtype=np.uint64))
    return _HEADER.pack(magic, len(document_ids), len(ids), rows.shape[1], total) + body


@final
@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """The rows of one query.

    Attributes:
        rows: [n, L]; they lie in the bytes that were unpacked, where those are aligned, and are read only.
        names: the row of each id; None where ids are digests.
        keys: the digests; they lie in the bytes too.
    """

    rows: Float32
    names: dict[str, int] | None
    keys: NDArray[np.bytes_]

    def places(self, document_ids: Sequence[str]) -> Int64:
        """Which row each document has, -1 where it has none, [n]."""
        if self.names is not None:
            find = self.names.get
            return np.array([find(name, -1) for name in document_ids], np.int64)
        wanted = np.frombuffer(digests(document_ids), "S16")
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[place] == wanted, place, -1)

    def answer(self, document_ids: Sequence[str], info: StoreInfo, *, held: object = None) -> Found:
        """Where these documents are; `held` is what the rows lie in."""
        if self.names is not None:
            try:
                known = np.fromiter(map(self.names.__getitem__, document_ids), np.int64, len(document_ids))
                return Found(self.rows, known, True, info, held)
            except KeyError:
                pass
        places = self.places(document_ids)
        return Found(self.rows, places, bool((places >= 0).all()), info, held)


def nothing(document_ids: Sequence[str], info: StoreInfo) -> Found:
    """The answer about a query that is not in the store."""
    return Found(info.empty[None], np.full(len(document_ids), -1, np.int64), not len(document_ids), info)


def unpack(value: Buffer, *, fields: int, what: str, names: dict[str, int] | None = None) -> Block:
    """What `pack` has packed; an error if it is damaged or of another version.

    Args:
        value: the bytes; they must stay as long as the block is used.
        fields: how many a row has.
        what: how an error names the value.
        names: as the same value gave before; it is not checked again then.
    """
    start = _HEADER.size
    magic, count, size, width, total = _HEADER.unpack_from(value) if len(value) >= start else (b"", 0, 0, 0, 0)
    first = start + size + -size % 8
    end = first + 4 * count * width
    if magic not in (_NAMED, _HASHED) or width != fields or not count or len(value) != end + -end % 8:
        raise _damaged(what)
    rows: Float32 = np.ndarray((count, width), _FLOAT, value, first)
    if not rows.flags.aligned:
        rows = rows.copy()
        rows.flags.writeable = False
    if magic == _HASHED:
        if size != 16 * count:
            raise _damaged(what)
        return Block(rows, None, np.frombuffer(value, "S16", count, start))
    if names is None:
        if int(np.frombuffer(value, "<u8", offset=start).sum(dtype=np.uint64)) != total:
            raise _damaged(what)
        names = dict(zip(str(value[start : start + size], "utf-8").split("\0"), range(count), strict=True))
    return Block(rows, names, _NO_KEYS)


def intact(value: Buffer) -> bool:
    """Whether all bytes are those that were packed."""
    body = np.frombuffer(value, "<u8", offset=_HEADER.size)
    return bool(body.sum(dtype=np.uint64) == _HEADER.unpack_from(value)[4])


_NO_KEYS: Final = np.empty(0, "S16")
_FLOAT: Final = np.dtype("<f4")


def _damaged(what: str) -> DataError:
    return DataError(
        "is damaged, or of another version", file=what, remedy="Publish it again: clickprism store publish"
    )
