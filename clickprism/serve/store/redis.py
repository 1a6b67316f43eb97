"""The store in a Redis server: the same rows under the same names, switched by one key.

    <prefix>:current             which version is current
    <prefix>:<name>:info         what it is
    <prefix>:<name>:<query>      the rows of a query
    <prefix>:lock                held by a builder that switches

Each lookup asks for `current` along with its rows, in one command, so it follows at once and never mixes versions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import uuid4

import redis

from clickprism._util.crash_points import crash_point
from clickprism.errors import DataError, SettingError
from clickprism.serve.store.base import (
    REMEDY,
    Found,
    StoreInfo,
    StoreUnavailableError,
    damaged,
    nothing,
    pack,
    query_key,
    unpack,
)
from clickprism.types import Float32

PREFIX: Final = "clickprism"
PASSWORD_VARIABLE: Final = "CLICKPRISM_REDIS_PASSWORD"  # noqa: S105 - the name of the variable
_TIMEOUT: Final = 5.0
_KEYS: Final = 1000


@final
class RedisAddress:
    """A server, and the prefix of all keys there.

    >>> RedisAddress("redis://me@db:6380/1?prefix=shop")
    redis://db:6380/1?prefix=shop
    >>> RedisAddress("redis://me:secret@db")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    clickprism.errors.SettingError: store must not contain a password, ... instead, got 'redis://...'
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        user, _, host = parts.netloc.rpartition("@")
        options = dict(parse_qsl(parts.query))
        unescaped = parts.scheme != "unix" and "@" in parts.path + parts.query + parts.fragment
        if ":" in user or "password" in options or unescaped:
            must = f"not contain a password, which the list of processes shows; set {PASSWORD_VARIABLE} instead"
            raise SettingError("store", f"{parts.scheme}://...", must)
        self.prefix = options.pop("prefix", PREFIX)
        if not self.prefix or any(sign in self.prefix for sign in "*?[]\\:"):
            raise SettingError("prefix", self.prefix, "be a text without any of *?[]:\\")
        self._url = urlunsplit(parts._replace(query=urlencode(options)))
        self._shown = urlunsplit(parts._replace(netloc=host, query=urlencode({"prefix": self.prefix})))

    def __repr__(self) -> str:
        return self._shown

    def connect(self) -> redis.Redis:
        """Return a client with the password of the environment; it connects when it is used."""
        password = os.environ.get(PASSWORD_VARIABLE)
        try:
            return redis.Redis.from_url(
                self._url, socket_timeout=_TIMEOUT, socket_connect_timeout=_TIMEOUT, password=password
            )
        except (ValueError, TypeError) as error:
            raise SettingError("store", self._shown, f"be redis://host:port/number ({error})") from None

    def key(self, *parts: str) -> bytes:
        """Return a key of the store."""
        return ":".join((self.prefix, *parts)).encode()

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Turn errors of the client into a StoreUnavailableError."""
        try:
            yield
        except redis.RedisError as error:
            raise StoreUnavailableError(f"{self}: {str(error) or type(error).__name__}") from None


@final
class RedisSnapshot:
    """One version of a store, open to read."""

    def __init__(self, client: redis.Redis, address: RedisAddress, name: str) -> None:
        self.name, self._client, self._address = name.encode(), client, address
        self._keys = address.key("current"), address.key(name, "")
        text: Any = client.get(address.key(name, "info"))
        what = f"{address}: the snapshot {name}"
        if text is None:
            raise DataError("has no description", file=what, remedy=REMEDY)
        try:
            self.info = StoreInfo.from_plain(json.loads(text), what=what)
        except ValueError:
            raise DataError("has a damaged description", file=what, remedy=REMEDY) from None

    def get(self, query_id: str, document_ids: Sequence[str]) -> Found:
        """Return the rows of these documents, whichever version is current."""
        return self.ask(query_id, document_ids)[0]

    def ask(self, query_id: str, document_ids: Sequence[str]) -> tuple[Found, bool]:
        """Return the rows of these documents, and whether this version is current."""
        with self._address.reaching():
            found: Any = self._client.mget((self._keys[0], self._keys[1] + query_key(query_id)))
        now, value = found
        if value is None:
            return nothing(document_ids, self.info), now == self.name
        block = unpack(value, fields=len(self.info.fields))
        if block is None:
            raise damaged(query_id, self._address)
        return block.find(document_ids, self.info), now == self.name


@final
class RedisStore:
    """The store in a Redis server, `redis://host:port/0?prefix=name`, open to read. It may be shared by threads."""

    problem: Exception | None = None  # each lookup asks for the newest version: it is used, or an error

    def __init__(self, url: str) -> None:
        self._address = RedisAddress(url)
        self._client = self._address.connect()
        with self._address.reaching():
            self._snapshot = self._newest()

    @property
    def info(self) -> StoreInfo:
        """Description of the current version."""
        with self._address.reaching():
            name: Any = self._client.get(self._address.key("current"))
            if name != self._snapshot.name:
                self._snapshot = self._newest()
        return self._snapshot.info

    def get(self, query_id: str, document_ids: Sequence[str]) -> Found:
        """Return the rows of these documents, all of one version."""
        for _ in range(20):
            found, current = self._snapshot.ask(query_id, document_ids)
            if current:
                return found
            with self._address.reaching():
                self._snapshot = self._newest()
        raise StoreUnavailableError(f"{self._address}: snapshots come and go faster than they can be read")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _newest(self) -> RedisSnapshot:
        name: Any = self._client.get(self._address.key("current"))
        if name is None:
            remedy = f"Fill it with: clickprism store publish LOG --to '{self._address}'"
            raise StoreUnavailableError(f"{self._address}: holds no published store. {remedy}")
        return RedisSnapshot(self._client, self._address, name.decode())


_FLUSH_BYTES: Final = 4 << 20
_DRAFT_SECONDS: Final = 24 * 3600
"""Seconds after which the keys of a builder that was killed expire."""
_SWITCH_SECONDS: Final = 600
"""Seconds after which another builder may switch, if one was killed while it did."""


@final
class RedisBuilder:
    """Fills a prefix with a new version; of several at a time, the last one to switch is current.

    A version stays for `grace` seconds after it was replaced.
    """

    def __init__(self, url: str, *, grace: float) -> None:
        self._address = RedisAddress(url)
        self._client = self._address.connect()
        self._grace = max(1, round(grace))
        self._draft = uuid4().hex
        self._start = self._address.key(self._draft, "")
        self._pipe = self._client.pipeline(transaction=False)
        self._bytes = 0

    def __enter__(self) -> RedisBuilder:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def present(self) -> StoreInfo | None:
        """Return the current version if it is complete; None otherwise."""
        with self._address.reaching(), suppress(DataError):
            name: Any = self._client.get(self._address.key("current"))
            return None if name is None else RedisSnapshot(self._client, self._address, name.decode()).info
        return None

    def put(self, query_id: str, document_ids: Sequence[str], rows: Float32) -> None:
        """Add all documents of a query; each query comes once."""
        value = pack(document_ids, rows)
        self._pipe.set(self._start + query_key(query_id), value, ex=_DRAFT_SECONDS)
        self._bytes += len(value)
        if self._bytes >= _FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        with self._address.reaching():
            self._pipe.execute()
        self._bytes = 0
        crash_point("store-begun")

    def seal(self, info: StoreInfo) -> RedisSnapshot:
        """Send the rest of what was put, and return it to look at; it is not current yet."""
        self._pipe.set(self._address.key(self._draft, "info"), json.dumps(info.plain()), ex=_DRAFT_SECONDS)
        self._flush()
        crash_point("store-filled")
        with self._address.reaching():
            return RedisSnapshot(self._client, self._address, self._draft)

    def switch(self) -> None:
        """Make the sealed version current; earlier versions expire after the grace period."""
        current, own = self._address.key("current"), self._address.key("lock")
        with self._address.reaching(), self._client.lock(own.decode(), timeout=_SWITCH_SECONDS):
            for pipe, key in self._keys(self._start):
                pipe.persist(key)
            self._client.set(current, self._draft)
            crash_point("store-switched")
            for pipe, key in self._keys(self._address.key("")):
                if not key.startswith(self._start) and key not in (current, own):
                    pipe.expire(key, self._grace, nx=True)

    def _keys(self, start: bytes) -> Iterator[tuple[Any, bytes]]:
        """Yield each key with this start, and a pipeline for commands on it."""
        pipe = self._client.pipeline(transaction=False)
        for key in self._client.scan_iter(match=start + b"*", count=_KEYS):
            yield pipe, key
            if len(pipe) >= _KEYS:
                pipe.execute()
        pipe.execute()
