"""The online store: named float32 fields by (query id, document id), in versions that are switched as a whole.

A version holds the click vectors of a log, or a ranker's features, or both. A lookup is answered from one version,
never from a mixture, and says which one it was and how old it is. `open_store` opens a folder (LMDB) or a Redis server;
`clickprism.serve.store.publish` fills both.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeAlias, final
from zlib import crc32

import msgspec
import numpy as np

from clickprism._util.tables import Table
from clickprism.errors import ClickprismError, DataError
from clickprism.types import Bool, Float32, Float64, Int64, check

REMEDY: Final = "Publish it again: clickprism store publish"
LAYOUT: Final = 2
"""Version of the stored format; readers refuse any other."""
IMPUTED: Final = "imputed"
"""The field with the imputed relevance of a pair."""
SCHEMES: Final = ("redis://", "rediss://", "unix://")
"""How the address of a Redis server starts; anything else is a folder."""


class StoreUnavailableError(ClickprismError):
    """The store cannot answer now: no connection, or nothing was published yet. Later it may."""

    exit_code: ClassVar[int] = DataError.exit_code


@final
@dataclass(frozen=True, eq=False)
class StoreInfo:
    """Description of one version of a store."""

    version: str  # Version, as every answer names it; other content has another version
    as_of: datetime  # Time of the features (UTC, without a zone)
    fields: tuple[str, ...]  # Names of the L values of a pair
    empty: Float32  # Values of a pair that is not in the store, [L]
    pairs: int  # Number of pairs

    def __post_init__(self) -> None:
        check(self.as_of.tzinfo is None, "as_of must be UTC, without a zone")
        check(self.empty.shape == (len(self.fields),), f"empty must be [{len(self.fields)}], got {self.empty.shape}")

    @property
    def as_of_text(self) -> str:
        """Time of the features for machines."""
        return f"{self.as_of.isoformat()}Z"

    def age(self, now: datetime | None = None) -> float:
        """Return the number of seconds since `as_of`, never below 0."""
        at = datetime.now(UTC).replace(tzinfo=None) if now is None else now
        return max(0.0, (at - self.as_of).total_seconds())

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it; NaN is null."""
        empty = [None if np.isnan(value) else value for value in self.empty.tolist()]
        known = {"layout": LAYOUT, "version": self.version, "as_of": self.as_of.isoformat(), "empty": empty}
        return known | {"fields": list(self.fields), "pairs": self.pairs}

    @classmethod
    def from_plain(cls, values: Any, *, what: str) -> StoreInfo:
        """Return the object that `plain` converted; a DataError that names `what` if it is something else.

        >>> info = StoreInfo("v", datetime(2026, 3, 1), ("a",), np.array([np.nan], np.float32), 2)
        >>> StoreInfo.from_plain(info.plain(), what="here").empty
        array([nan], dtype=float32)
        """
        try:
            if values["layout"] != LAYOUT:
                raise DataError(f"has the layout {values['layout']}, not {LAYOUT}", file=what, remedy=REMEDY)
            empty = np.array([np.nan if value is None else value for value in values["empty"]], np.float32)
            as_of, fields = datetime.fromisoformat(values["as_of"]), tuple(map(str, values["fields"]))
            return cls(str(values["version"]), as_of, fields, empty, int(values["pairs"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"does not describe a store ({error})", file=what, remedy=REMEDY) from None


@final
@dataclass(frozen=True)
class StoreDescription:
    """What a store contains."""

    store: str  # Folder or address
    version: str  # Current version, as every answer of the service names it
    as_of: datetime  # Time of the features (UTC)
    age_seconds: float  # Age of the features
    pairs: int  # Number of query-document pairs
    fields: tuple[str, ...]  # Names of the values of a pair

    def tables(self) -> list[Table]:
        """Return the current version, and the names of the fields."""
        time, age = self.as_of.isoformat(sep=" ", timespec="seconds"), str(timedelta(seconds=round(self.age_seconds)))
        rows = [["version", self.version], ["as of", f"{time} UTC ({age} ago)"], ["pairs", f"{self.pairs:,}"]]
        return [Table("", ["store", self.store], rows), Table("", ["fields"], [[name] for name in self.fields])]


@final
class Found(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The rows of some documents of a query, all of one version."""

    rows: Float32  # Rows of documents of the query, read only, [m, L]
    places: Int64  # Row of each document in the question, -1 if the store does not have the pair, [n]
    whole: bool  # Whether the store has all pairs
    info: StoreInfo  # Of the version
    block: Block | None = None  # Where scores of the rows may be kept; None if rows are read again for each lookup
    held: Any = None  # Keeps the file open in which the rows are; its `remember` keeps the block

    @property
    def x(self) -> Float32:
        """Features of the pairs in the order of the request, copied; `info.empty` for a pair without any, [n, L]."""
        if self.whole:
            return self.rows.take(self.places, axis=0)
        x = np.repeat(self.info.empty[None], len(self.places), axis=0)
        x[self.found] = self.rows.take(self.places[self.found], axis=0)
        return x

    @property
    def found(self) -> Bool:
        """Whether the store has the pair, [n]."""
        return self.places >= 0


class FeatureStore(Protocol):
    """Where rankers get features from: safe to use from several threads.

    Attributes:
        problem: Why the version that was published last is not used; None if it is.
    """

    problem: Exception | None

    @property
    def info(self) -> StoreInfo:
        """Description of the current version."""
        ...

    def get(self, query_id: str, document_ids: Sequence[str]) -> Found:
        """Return the rows of these documents, in one lookup."""
        ...

    def close(self) -> None:
        """Close files and connections."""
        ...


def is_remote(url: str | None) -> bool:
    """Return whether a store is a Redis server."""
    return url is not None and url.startswith(SCHEMES)


def open_store(url: str | Path) -> FeatureStore:
    """Return the store at this address: a folder, or `redis://host:port/0?prefix=name`.

    It follows what is published there while it is open. An error if nothing was published yet.
    """
    if is_remote(str(url)):
        from clickprism.serve.store.redis import RedisStore

        return RedisStore(str(url))
    from clickprism.serve.store.lmdb import LmdbStore

    return LmdbStore(Path(url))


def describe_store(url: str | Path) -> StoreDescription:
    """Return what the store at this address contains: a folder, or `redis://host:port/0?prefix=name`."""
    with closing(open_store(url)) as store:
        info = store.info
    return StoreDescription(str(url), info.version, info.as_of, round(info.age(), 1), info.pairs, info.fields)


# The rows of one query as bytes, in the same form in every store.
#
#     magic (4) · CRC-32 of all that follows (u32) · fields (u32) · bytes of the ids (u32) · ids · float32 rows
#
# The ids are a MessagePack map from each id to its row, padded to 4 bytes: one call decodes it to a dictionary.
KEY_BYTES: Final = 500
_HEADER: Final = struct.Struct("<4sIII")
_SUMMED: Final = 8  # where the sum begins
_MAGIC: Final = b"cpN2"
_PLACES: Final = msgspec.msgpack.Decoder(dict[str, int]).decode
Buffer: TypeAlias = bytes | memoryview


def query_key(query_id: str) -> bytes:
    """Return the key of a query: its id, or a digest of an id that is too long for a key.

    >>> query_key("shoes"), len(query_key("x" * 9000))
    (b'qshoes', 33)
    """
    key = b"q" + query_id.encode()
    return key if len(key) <= KEY_BYTES else b"h" + blake2b(key, digest_size=32).digest()


def pack(document_ids: Sequence[str], rows: Float32) -> bytes:
    """Return the documents of one query, each once, with their rows, [n, L].

    >>> block = unpack(pack(["b", "a"], np.array([[1.0], [2.0]], np.float32)), fields=1)
    >>> block.places, block.rows.tolist()
    ({'b': 0, 'a': 1}, [[1.0], [2.0]])
    """
    ids = msgspec.msgpack.encode(dict(zip(document_ids, range(len(rows)), strict=True)))
    values = np.ascontiguousarray(rows, "<f4").tobytes()
    packed = b"".join([_HEADER.pack(_MAGIC, 0, rows.shape[1], len(ids)), ids, bytes(-len(ids) % 4), values])
    total = crc32(memoryview(packed)[_SUMMED:])
    return b"".join([_MAGIC, total.to_bytes(4, "little"), packed[_SUMMED:]])


def unpack(value: Buffer, *, fields: int) -> Block | None:
    """Return the values that `pack` packed; None if they are damaged or of another version."""
    view, start = memoryview(value), _HEADER.size
    magic, total, width, size = _HEADER.unpack_from(view) if len(view) >= start else (b"", 0, 0, 0)
    if magic != _MAGIC or width != fields or crc32(view[_SUMMED:]) != total:
        return None
    places = _PLACES(view[start : start + size])
    rows: Float32 = np.ndarray((len(places), width), "<f4", view, start + size + -size % 4)
    return Block(rows if rows.flags.aligned else rows.copy(), places, {})


@final
class Block(msgspec.Struct, frozen=True, eq=False):
    """The rows of one query in the bytes that were unpacked, the row of each document, and scores of the rows."""

    rows: Float32
    places: dict[str, int]
    scores: dict[str, Float64]

    def find(self, document_ids: Sequence[str], info: StoreInfo, *, held: Any = None) -> Found:
        """Return the rows of these documents; `held` keeps them readable."""
        block = None if held is None else self
        try:
            places = np.fromiter(map(self.places.__getitem__, document_ids), np.int64, len(document_ids))
            return Found(self.rows, places, True, info, block, held)
        except KeyError:
            places = np.array([self.places.get(name, -1) for name in document_ids], np.int64)
            return Found(self.rows, places, False, info, block, held)


def damaged(query_id: str, where: object) -> DataError:
    """Return the error of a query whose rows `unpack` refused."""
    return DataError("is damaged, or of another version", file=f"{where}: the query {query_id!r}", remedy=REMEDY)


def nothing(document_ids: Sequence[str], info: StoreInfo) -> Found:
    """Return the answer about a query that is not in the store."""
    return Found(info.empty[None], np.full(len(document_ids), -1, np.int64), not len(document_ids), info)
