"""The online store: named float32 fields by (query id, document id), in snapshots that are switched as a whole.

A snapshot holds the click vectors of a log, or a ranker's features, or both. A lookup is answered from one snapshot,
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
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias, final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
import numpy as np
from numpy.typing import NDArray

from clickprism._util.tables import Table
from clickprism.errors import ClickprismError, DataError, SettingError
from clickprism.types import Bool, Float32, Int64, check

AGAIN: Final = "Publish it again: clickprism store publish"
LAYOUT: Final = 1
"""Of what is stored; readers refuse any other."""
IMPUTED: Final = "imputed"
"""The field with the imputed relevance of a pair, where a store has it."""
SCHEMES: Final = ("redis://", "rediss://", "unix://")
"""How the address of a Redis server starts; anything else is a folder."""


PASSWORD_VARIABLE: Final = "CLICKPRISM_REDIS_PASSWORD"  # noqa: S105 - the name of the variable
"""Where the password of a Redis server is, when its address has none."""


class StoreUnavailableError(ClickprismError):
    """The store cannot answer now: no connection, or nothing was published yet. Later it may."""

    exit_code: ClassVar[int] = DataError.exit_code


@final
@dataclass(frozen=True, eq=False)
class StoreInfo:
    """What one snapshot of a store is.

    Attributes:
        version: the feature version in every answer; another content has another.
        as_of: nothing later is in it, UTC without a zone.
        fields: the names of the L columns.
        empty: what a pair holds that is not in the store, [L].
        pairs: how many it has.
    """

    version: str
    as_of: datetime
    fields: tuple[str, ...]
    empty: Float32
    pairs: int

    def __post_init__(self) -> None:
        check(self.as_of.tzinfo is None, "as_of must be UTC, without a zone")
        check(self.empty.shape == (len(self.fields),), f"empty must be [{len(self.fields)}], got {self.empty.shape}")

    def age(self, now: datetime | None = None) -> float:
        """Seconds since `as_of`, never below 0."""
        at = datetime.now(UTC).replace(tzinfo=None) if now is None else now
        return max(0.0, (at - self.as_of).total_seconds())

    def plain(self) -> dict[str, Any]:
        """As JSON has it; a number that is none is null."""
        return {
            "layout": LAYOUT,
            "version": self.version,
            "as_of": self.as_of.isoformat(),
            "fields": list(self.fields),
            "empty": [None if np.isnan(value) else value for value in self.empty.tolist()],
            "pairs": self.pairs,
        }

    @classmethod
    def from_plain(cls, values: Any, *, what: str) -> StoreInfo:
        """What `plain` gave; an error that names `what` if it is something else.

        >>> info = StoreInfo("v", datetime(2026, 3, 1), ("a",), np.array([np.nan], np.float32), 2)
        >>> StoreInfo.from_plain(info.plain(), what="here").empty
        array([nan], dtype=float32)
        """
        try:
            if values["layout"] != LAYOUT:
                raise DataError(f"has the layout {values['layout']}, not {LAYOUT}", file=what, remedy=AGAIN)
            empty = np.array([np.nan if value is None else value for value in values["empty"]], np.float32)
            as_of, fields = datetime.fromisoformat(values["as_of"]), tuple(map(str, values["fields"]))
            return cls(str(values["version"]), as_of, fields, empty, int(values["pairs"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"does not describe a store ({error})", file=what, remedy=AGAIN) from None


@final
@dataclass(frozen=True)
class StoredVersion:
    """One version of a store.

    Attributes:
        version: Version, as every answer of the service names it.
        current: Whether it is the version that readers use.
        as_of: Time of the features (UTC).
        age_seconds: Age of the features.
        queries: Number of queries.
        pairs: Number of query-document pairs.
        fields: Number of values for each pair.
        bytes: Size on disk (folder) or in memory (Redis).
    """

    version: str
    current: bool
    as_of: datetime
    age_seconds: float
    queries: int
    pairs: int
    fields: int
    bytes: int

    @classmethod
    def of(cls, info: StoreInfo, *, current: bool, queries: int, size: int) -> StoredVersion:
        """Return the description of a snapshot."""
        age = round(info.age(), 1)
        return cls(info.version, current, info.as_of, age, queries, info.pairs, len(info.fields), size)


@final
@dataclass(frozen=True)
class StoreDescription:
    """What a store contains.

    Attributes:
        store: Folder or address.
        kind: A folder (LMDB) or a Redis server.
        fields: Names of the values that the current version has for each pair.
        versions: The current version, then older ones that are kept for a while.
    """

    store: str
    kind: Literal["folder", "redis"]
    fields: tuple[str, ...]
    versions: tuple[StoredVersion, ...]

    def tables(self) -> list[Table]:
        """Return the versions, and the names of the fields."""
        header = ["version", "state", "as of (UTC)", "age", "queries", "pairs", "fields", "size"]
        rows = [
            [
                it.version,
                "current" if it.current else "old",
                it.as_of.isoformat(sep=" ", timespec="seconds"),
                str(timedelta(seconds=round(it.age_seconds))),
                *(f"{count:,}" for count in (it.queries, it.pairs, it.fields)),
                f"{it.bytes / 1e6:,.2f} MB",
            ]
            for it in self.versions
        ]
        caption = f"{self.store} ({'LMDB folder' if self.kind == 'folder' else 'Redis server'})"
        return [Table(caption, header, rows), Table("", ["fields"], [[name] for name in self.fields])]


@final
class Found(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The rows of some documents of a query, all of one snapshot.

    Attributes:
        rows: of documents of the query, read only, [m, L].
        places: which of them each document in the question has, -1 where the store does not have the pair, [n].
        whole: whether it has them all.
        info: of the snapshot.
        held: what must not go as long as the rows are read.
    """

    rows: Float32
    places: Int64
    whole: bool
    info: StoreInfo
    held: object = None

    @property
    def x(self) -> Float32:
        """In the order of the question, copied, `info.empty` where there is none, [n, L]."""
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
    """Where rankers get features from: safe to use from several threads."""

    @property
    def info(self) -> StoreInfo:
        """Of the snapshot in force."""
        ...

    def get(self, query_id: str, document_ids: Sequence[str]) -> Found:
        """The rows of these documents, in one lookup."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...


def open_store(url: str | Path) -> FeatureStore:
    """The store at this address: a folder, or `redis://host:port/0?prefix=name`.

    It follows what is published there while it is open. An error if nothing was published yet.
    """
    if str(url).startswith(SCHEMES):
        from clickprism.serve.store.redis import RedisStore

        return RedisStore(str(url))
    from clickprism.serve.store.lmdb import LmdbStore

    return LmdbStore(Path(url))


def describe_store(url: str | Path) -> StoreDescription:
    """Return what the store at this address contains: a folder, or `redis://host:port/0?prefix=name`."""
    if str(url).startswith(SCHEMES):
        from clickprism.serve.store.redis import RedisStore

        with closing(RedisStore(str(url))) as server:
            return StoreDescription(server.shown, "redis", server.info.fields, server.versions())
    from clickprism.serve.store.lmdb import LmdbStore

    with closing(LmdbStore(Path(url))) as folder:
        return StoreDescription(str(url), "folder", folder.info.fields, folder.versions())


def typed_address(url: str) -> str:
    """Return the address of a store; refuse a password in it, which every user sees in the list of processes.

    >>> typed_address("redis://me:secret@db:6380/1")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    clickprism.errors.SettingError: store must not contain a password, ... instead, got 'redis://me:...@db:6380/1'
    """
    if not url.startswith(SCHEMES):
        return url
    parts = urlsplit(url)
    names, at, host = parts.netloc.rpartition("@")
    user, colon, _ = names.partition(":")
    options = [(name, "..." if name == "password" else value) for name, value in parse_qsl(parts.query)]
    if not colon and "password" not in dict(options):
        return url
    shown = urlunsplit(parts._replace(netloc=f"{user}{':...' if colon else ''}{at}{host}", query=urlencode(options)))
    must = f"not contain a password, which the list of processes shows; set {PASSWORD_VARIABLE} instead"
    raise SettingError("store", shown, must)


# The rows of one query as bytes, in the same form in every store: a header, document ids, float32 rows.
#
#     magic (4) · documents (u32) · bytes of ids (u32) · fields (u32) · sum (u64) · ids · rows, each padded to 8 bytes
#
# Ids are UTF-8, parted by a NUL, in the order of the rows. Where a query has more than `LARGE` documents they are
# 16-byte digests in rising order instead, so that a few of very many are found without reading them all. `sum` is that
# of all 8-byte words behind it.
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
    return DataError("is damaged, or of another version", file=what, remedy=AGAIN)
