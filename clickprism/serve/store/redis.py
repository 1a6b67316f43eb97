"""The store in a Redis server: the same rows under the same names, switched by one key.

    <prefix>:current             which snapshot is in force
    <prefix>:<name>:info         what it is
    <prefix>:<name>:<query>      the rows of a query
    <prefix>:<name>:<query>#     those of a query with very many documents, a hash by document
    <prefix>:lock                held by the one who builds

Each lookup asks for `current` along with its rows, in one command, so it follows at once and never mixes.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from types import TracebackType
from typing import Any, Final, final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import uuid4

import numpy as np
import redis

from clickprism._util.crash_points import crash_point
from clickprism.errors import DataError, SettingError
from clickprism.serve.store.base import AGAIN, PASSWORD_VARIABLE, Found, StoredVersion, StoreInfo, StoreUnavailableError
from clickprism.serve.store.block import LARGE, nothing, pack, query_key, unpack
from clickprism.types import Float32

PREFIX: Final = "clickprism"
MARK: Final = b"many"
"""The value of a query whose rows lie in a hash."""
_TIMEOUT: Final = 5.0
_KEYS: Final = 1000


@final
class RedisAddress:
    """A server, and the prefix of all keys there; neither its text nor its errors have a password in them.

    Where the address has no password, that in the variable CLICKPRISM_REDIS_PASSWORD is used, if there is one.

    >>> RedisAddress("redis://me:secret@db:6380/1?prefix=shop")
    redis://db:6380/1?prefix=shop
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "unix" and "@" in parts.path + parts.query + parts.fragment:
            remedy = "be redis://user:password@host:port/0, with / # ? @ of a password as %2F %23 %3F %40"
            raise SettingError("store", f"{parts.scheme}://...", remedy)
        options = dict(parse_qsl(parts.query))
        self.prefix = options.pop("prefix", PREFIX)
        if not self.prefix or any(sign in self.prefix for sign in "*?[]\\:"):
            raise SettingError("prefix", self.prefix, "be a text without any of *?[]:\\")
        self._url = urlunsplit(parts._replace(query=urlencode(options)))
        host = parts.netloc.rpartition("@")[2]
        self._shown = urlunsplit(parts._replace(netloc=host, query=urlencode({"prefix": self.prefix})))

    def __repr__(self) -> str:
        return self._shown

    def connect(self) -> redis.Redis:
        """A client; it connects when it is used."""
        options: dict[str, Any] = {"socket_timeout": _TIMEOUT, "socket_connect_timeout": _TIMEOUT}
        options["password"] = os.environ.get(PASSWORD_VARIABLE)  # one in the address goes before
        try:
            return redis.Redis.from_url(self._url, **options)
        except (ValueError, TypeError) as error:
            raise SettingError("store", self._shown, f"be redis://host:port/number ({error})") from None

    def key(self, *parts: str) -> bytes:
        """A key of the store."""
        return ":".join((self.prefix, *parts)).encode()

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Turn what the client raises into words."""
        try:
            yield
        except redis.RedisError as error:
            said = str(error)
            raise StoreUnavailableError(f"{self}: {said or type(error).__name__}") from None


@final
class RedisSnapshot:
    """One snapshot; `get` says None if it is no longer in force."""

    def __init__(self, client: redis.Redis, address: RedisAddress, name: str) -> None:
        self.name = name.encode()
        self._client = client
        self._address = address
        self._pointer = address.key("current")
        self._start = address.key(name, "")
        text: Any = client.get(address.key(name, "info"))
        what = f"{address}: the snapshot {name}"
        if text is None:
            raise DataError("has no description", file=what, remedy=AGAIN)
        try:
            self.info = StoreInfo.from_plain(json.loads(text), what=what)
        except ValueError:
            raise DataError("has a damaged description", file=what, remedy=AGAIN) from None

    def get(self, query_id: str, document_ids: Sequence[str], *, in_force: bool = True) -> Found | None:
        """The rows of these documents; with `in_force`, None where another snapshot is."""
        key = self._start + query_key(query_id)
        found: Any = self._client.mget((self._pointer, key))
        if in_force and found[0] != self.name:
            return None
        if found[1] is None:
            return nothing(document_ids, self.info)
        if found[1] == MARK:
            return self._many(key, document_ids)
        what = f"{self._address}: the query {query_id!r}"
        return unpack(found[1], fields=len(self.info.fields), what=what).answer(document_ids, self.info)

    def _many(self, key: bytes, document_ids: Sequence[str]) -> Found:
        values: Any = self._client.hmget(key + b"#", [b"", *(b"d" + name.encode() for name in document_ids)])
        if values[0] != MARK:
            raise DataError("has lost its rows", file=f"{self._address}: {key!r}", remedy=AGAIN)
        found = np.array([value is not None for value in values[1:]], np.bool_)
        empty = self.info.empty.astype("<f4").tobytes()
        rows = b"".join([empty if value is None else value for value in values[1:]])
        if len(rows) != len(document_ids) * len(empty):
            raise DataError("has a damaged row", file=f"{self._address}: {key!r}", remedy=AGAIN)
        x = np.frombuffer(rows, "<f4").reshape(len(document_ids), len(self.info.fields))
        places = np.where(found, np.arange(len(found)), -1)
        return Found(x, places, bool(found.all()), self.info)


@final
class RedisStore:
    """The store in a Redis server, open to read. It may be shared by threads.

    Args:
        url: `redis://host:port/0?prefix=name`.
    """

    def __init__(self, url: str) -> None:
        self._address = RedisAddress(url)
        self._client = self._address.connect()
        with self._address.reaching():
            self._snapshot = self._newest()

    @property
    def info(self) -> StoreInfo:
        """Of the snapshot in force."""
        with self._address.reaching():
            name: Any = self._client.get(self._address.key("current"))
            if name != self._snapshot.name:
                self._snapshot = self._newest()
        return self._snapshot.info

    def get(self, query_id: str, document_ids: Sequence[str]) -> Found:
        """The rows of these documents, all of one snapshot."""
        with self._address.reaching():
            for _ in range(20):
                found = self._snapshot.get(query_id, document_ids)
                if found is not None:
                    return found
                self._snapshot = self._newest()
        raise StoreUnavailableError(f"{self._address}: snapshots come and go faster than they can be read")

    @property
    def shown(self) -> str:
        """The address without a password."""
        return repr(self._address)

    def versions(self) -> tuple[StoredVersion, ...]:
        """Return what is stored: the current version first, then older ones that expire soon. This reads every key."""
        queries: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        with self._address.reaching():
            keys = self._client.scan_iter(match=self._address.key("*"), count=_KEYS)
            while part := list(islice(keys, _KEYS)):
                pipe = self._client.pipeline(transaction=False)
                for key in part:
                    pipe.type(key)
                    pipe.memory_usage(key, samples=0)
                answers = pipe.execute()
                for key, kind, size in zip(part, answers[::2], answers[1::2], strict=True):
                    _, name, *rest = key.decode(errors="replace").split(":", 2)
                    if rest:
                        queries[name] += kind == b"string" and rest != ["info"]
                        sizes[name] += size or 0
            current = self._snapshot.name.decode()
            infos = {name: self._info(name) for name in sorted(sizes, key=lambda name: name != current)}
        return tuple(
            StoredVersion.of(info, current=name == current, queries=queries[name], size=sizes[name])
            for name, info in infos.items()
            if info is not None
        )

    def _info(self, name: str) -> StoreInfo | None:
        """Return what a snapshot is; None if it is being written or has expired."""
        try:
            return RedisSnapshot(self._client, self._address, name).info
        except DataError:
            return None

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def _newest(self) -> RedisSnapshot:
        name: Any = self._client.get(self._address.key("current"))
        if name is None:
            remedy = f"Fill it with: clickprism store publish LOG --to '{self._address}'"
            raise StoreUnavailableError(f"{self._address}: holds no published store. {remedy}")
        return RedisSnapshot(self._client, self._address, name.decode())


_FLUSH_BYTES: Final = 4 << 20
_LOCK_SECONDS: Final = 30
_RENEW_SECONDS: Final = _LOCK_SECONDS / 4


@final
class RedisBuilder:
    """The one who fills a prefix; to be used in a `with`, one at a time.

    Args:
        url: as `RedisStore` takes it.
        grace: seconds for which a snapshot stays after it was replaced.
        waiting: called once if another builds here.
    """

    def __init__(self, url: str, *, grace: float, waiting: Callable[[], None] | None = None) -> None:
        self._address = RedisAddress(url)
        self._client = self._address.connect()
        self._grace = max(1, round(grace))
        self._waiting = waiting
        self._token = uuid4().hex.encode()
        self._draft = f"{uuid4().hex}"
        self._start = self._address.key(self._draft, "")
        self._pipe = self._client.pipeline(transaction=False)
        self._bytes = 0
        self._left = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="clickprism-redis-lock", daemon=True)

    def __enter__(self) -> RedisBuilder:
        lock, waited = self._address.key("lock"), False
        with self._address.reaching():
            while not self._client.set(lock, self._token, nx=True, ex=_LOCK_SECONDS):
                if self._waiting is not None and not waited:
                    self._waiting()
                waited = True
                time.sleep(0.2)
        self._keeper.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._let_go()
        try:
            if self._client.get(self._address.key("lock")) == self._token:
                if kind is not None:
                    self._expire(seconds=1)
                self._client.delete(self._address.key("lock"))
            self._client.close()
        except redis.RedisError:
            if kind is None:
                raise

    def _keep(self) -> None:
        """Hold the lock however long rows take to come, such as while they are sorted."""
        lock = self._address.key("lock")
        while not self._left.wait(_RENEW_SECONDS):
            with suppress(redis.RedisError):
                if self._client.get(lock) == self._token:
                    self._client.expire(lock, _LOCK_SECONDS, gt=True)

    def _let_go(self) -> None:
        """Prolong the lock no more; what watches it would take that for another's doing."""
        self._left.set()
        self._keeper.join()

    def present(self) -> StoreInfo | None:
        """What is in force, if it is whole; None otherwise."""
        with self._address.reaching():
            name: Any = self._client.get(self._address.key("current"))
            try:
                return None if name is None else RedisSnapshot(self._client, self._address, name.decode()).info
            except DataError:
                return None

    def put(self, query_id: str, document_ids: Sequence[str], rows: Float32) -> None:
        """All documents of a query; each query comes once."""
        key = self._start + query_key(query_id)
        if len(document_ids) <= LARGE:
            self._add(key, pack(document_ids, rows))
        else:
            values = np.ascontiguousarray(rows, "<f4")
            self._add(key, MARK)
            self._pipe.hset(key + b"#", b"", MARK)
            for start in range(0, len(document_ids), _KEYS):
                part = slice(start, start + _KEYS)
                names = [b"d" + name.encode() for name in document_ids[part]]
                held: dict[Any, Any] = {name: row.tobytes() for name, row in zip(names, values[part], strict=True)}
                self._pipe.hset(key + b"#", mapping=held)
                self._bytes += values[part].nbytes
                self._flush(_FLUSH_BYTES)

    def _add(self, key: bytes, value: bytes) -> None:
        self._pipe.set(key, value)
        self._bytes += len(value)
        self._flush(_FLUSH_BYTES)

    def _flush(self, least: int = 0) -> None:
        if self._bytes < least:
            return
        with self._address.reaching():
            if self._client.get(self._address.key("lock")) != self._token:
                raise StoreUnavailableError(f"{self._address}: another one publishes there. Run the command again")
            self._pipe.execute()
        self._bytes = 0
        crash_point("store-begun")

    def seal(self, info: StoreInfo) -> _Sealed:
        """Nothing more comes; it can be looked at, but is not in force yet."""
        self._pipe.set(self._address.key(self._draft, "info"), json.dumps(info.plain()))
        self._flush()
        crash_point("store-filled")
        with self._address.reaching():
            return _Sealed(RedisSnapshot(self._client, self._address, self._draft), self._address)

    def switch(self) -> None:
        """Put what was sealed in force; all else here expires after the grace."""
        lock = self._address.key("lock")
        self._let_go()
        with self._address.reaching(), self._client.pipeline() as pipe:
            pipe.watch(lock)  # type: ignore[no-untyped-call]
            if pipe.get(lock) != self._token:
                raise StoreUnavailableError(f"{self._address}: another one publishes there. Run the command again")
            pipe.multi()
            pipe.set(self._address.key("current"), self._draft)
            pipe.expire(lock, 10 * _LOCK_SECONDS)
            pipe.execute()
            crash_point("store-switched")
            self._expire(seconds=self._grace)

    def _expire(self, *, seconds: int) -> None:
        """Let all keys go that are not of the snapshot in force, if they are not going already."""
        name: Any = self._client.get(self._address.key("current"))
        kept = self._address.key("") if name is None else self._address.key(name.decode(), "")
        own = (self._address.key("current"), self._address.key("lock"))
        pipe = self._client.pipeline(transaction=False)
        for key in self._client.scan_iter(match=self._address.key("*"), count=_KEYS):
            if key not in own and (name is None or not key.startswith(kept)):
                pipe.expire(key, seconds, nx=True)
            if len(pipe) >= _KEYS:
                pipe.execute()
        pipe.execute()


@final
class _Sealed:
    """A snapshot that is not in force yet."""

    def __init__(self, snapshot: RedisSnapshot, address: RedisAddress) -> None:
        self._snapshot = snapshot
        self._address = address
        self.info = snapshot.info

    def get(self, query_id: str, document_ids: Sequence[str]) -> Found:
        """The rows of these documents."""
        with self._address.reaching():
            found = self._snapshot.get(query_id, document_ids, in_force=False)
        if found is None:
            raise DataError("has no answer", file=repr(self._address))
        return found
