"""The store in a Redis server: the same rows under the same names, switched by one key.

    <prefix>:current             which snapshot is in force
    <prefix>:<name>:info         what it is
    <prefix>:<name>:<query>      the rows of a query
    <prefix>:lock                held by the one who builds

Each lookup asks for `current` along with its rows, in one command, so it follows at once and never mixes.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from types import TracebackType
from typing import Any, Final, final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import uuid4

import redis

from clickprism._util.crash_points import crash_point
from clickprism.errors import DataError, SettingError
from clickprism.serve.store.base import (
    AGAIN,
    PASSWORD_VARIABLE,
    Found,
    StoredVersion,
    StoreInfo,
    StoreUnavailableError,
    nothing,
    pack,
    query_key,
    unpack,
)
from clickprism.types import Float32

PREFIX: Final = "clickprism"
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
    """One snapshot; once it was in force, `get` returns None if it is that no longer."""

    def __init__(self, client: redis.Redis, address: RedisAddress, name: str, *, switched: bool = True) -> None:
        self.switched = switched
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

    def get(self, query_id: str, document_ids: Sequence[str]) -> Found | None:
        """The rows of these documents; None where another snapshot is in force."""
        with self._address.reaching():
            found: Any = self._client.mget((self._pointer, self._start + query_key(query_id)))
        now, value = found
        if now != self.name and self.switched:
            return None
        if value is None:
            return nothing(document_ids, self.info)
        what = f"{self._address}: the query {query_id!r}"
        return unpack(value, fields=len(self.info.fields), what=what).answer(document_ids, self.info)


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
        for _ in range(20):
            found = self._snapshot.get(query_id, document_ids)
            if found is not None:
                return found
            with self._address.reaching():
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
        name = self._address.key("lock").decode()
        self._lock = self._client.lock(name, timeout=_LOCK_SECONDS, sleep=0.2, thread_local=False)
        self._draft = uuid4().hex
        self._start = self._address.key(self._draft, "")
        self._pipe = self._client.pipeline(transaction=False)
        self._bytes = 0
        self._left = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="clickprism-redis-lock", daemon=True)

    def __enter__(self) -> RedisBuilder:
        with self._address.reaching():
            if not self._lock.acquire(blocking=False):
                if self._waiting is not None:
                    self._waiting()
                self._lock.acquire()
        self._keeper.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._let_go()
        try:
            if self._lock.owned():
                if kind is not None:
                    self._expire(seconds=1)
                self._lock.release()
            self._client.close()
        except redis.RedisError:
            if kind is None:
                raise

    def _keep(self) -> None:
        """Hold the lock however long rows take to come, such as while they are sorted."""
        while not self._left.wait(_RENEW_SECONDS):
            with suppress(redis.RedisError):
                self._lock.reacquire()

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
        value = pack(document_ids, rows)
        self._pipe.set(self._start + query_key(query_id), value)
        self._bytes += len(value)
        if self._bytes >= _FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        with self._address.reaching():
            if not self._lock.owned():
                raise self._lost()
            self._pipe.execute()
        self._bytes = 0
        crash_point("store-begun")

    def _lost(self) -> StoreUnavailableError:
        return StoreUnavailableError(f"{self._address}: another one publishes there. Run the command again")

    def seal(self, info: StoreInfo) -> RedisSnapshot:
        """Nothing more comes; it can be looked at, but is not in force yet."""
        self._pipe.set(self._address.key(self._draft, "info"), json.dumps(info.plain()))
        self._flush()
        crash_point("store-filled")
        with self._address.reaching():
            return RedisSnapshot(self._client, self._address, self._draft, switched=False)

    def switch(self) -> None:
        """Put what was sealed in force; all else here expires after the grace."""
        self._let_go()
        with self._address.reaching(), self._client.pipeline() as pipe:
            pipe.watch(self._lock.name)  # type: ignore[no-untyped-call]
            if pipe.get(self._lock.name) != self._lock.local.token:
                raise self._lost()
            pipe.multi()
            pipe.set(self._address.key("current"), self._draft)
            pipe.expire(self._lock.name, 10 * _LOCK_SECONDS)
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
