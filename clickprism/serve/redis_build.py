"""A new snapshot of the store in a Redis server: written under a new name, then switched to by one key.

A builder that is killed leaves the snapshot in force as it was, and keys that the next one lets expire.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, final
from uuid import uuid4

import numpy as np
import redis

from clickprism._util.crash_points import crash_point
from clickprism.errors import DataError
from clickprism.serve.block import LARGE, pack, query_key
from clickprism.serve.redis_store import MARK, RedisAddress, RedisSnapshot
from clickprism.serve.store import Found, StoreInfo, StoreUnavailableError
from clickprism.types import Float32

_FLUSH_BYTES: Final = 4 << 20
_LOCK_SECONDS: Final = 30
_RENEW_SECONDS: Final = _LOCK_SECONDS / 4
_KEYS: Final = 1000


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
