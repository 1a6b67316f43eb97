"""The online store: named float32 fields by (query id, document id), in snapshots that are switched as a whole.

A snapshot holds the click vectors of a log, or a ranker's features, or both. A lookup is answered from one snapshot,
never from a mixture, and says which one it was and how old it is. `open_store` opens a folder (LMDB) or a Redis server;
`clickprism.serve.store.publish` fills both.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Protocol, final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
import numpy as np

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


class StaleFeaturesError(ClickprismError):
    """The features are older than allowed, and the policy is to refuse them."""


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


@final
@dataclass(frozen=True)
class AgePolicy:
    """What to do with features that are old.

    Attributes:
        max_age: seconds; None: any age will do.
        action: `mark` says in the answer that they are stale, `refuse` is an error.

    >>> info = StoreInfo("v", datetime(2026, 3, 1), (), np.zeros(0, np.float32), 0)
    >>> AgePolicy(max_age=60).stale(info, now=datetime(2026, 3, 1, 0, 2))
    True
    >>> AgePolicy(max_age=60, action="refuse").stale(info, now=datetime(2026, 3, 1, 0, 2))
    Traceback (most recent call last):
    clickprism.serve.store.base.StaleFeaturesError: the features are 120 s old, more than max_feature_age 60 s
    """

    max_age: float | None = None
    action: Literal["mark", "refuse"] = "mark"

    def __post_init__(self) -> None:
        if self.max_age is not None and not 0 < self.max_age < float("inf"):
            raise SettingError("max_feature_age", self.max_age, "be above 0 seconds")
        if self.action not in ("mark", "refuse"):
            raise SettingError("stale_features", self.action, "be mark or refuse")

    def stale(self, info: StoreInfo, *, now: datetime | None = None) -> bool:
        """Whether the snapshot is too old; an error if such are refused."""
        if self.max_age is None:
            return False
        age = info.age(now)
        if age > self.max_age and self.action == "refuse":
            raise StaleFeaturesError(f"the features are {age:.0f} s old, more than max_feature_age {self.max_age:g} s")
        return age > self.max_age
