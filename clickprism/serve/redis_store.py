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
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import numpy as np
import redis

from clickprism.errors import DataError, SettingError
from clickprism.serve.block import nothing, query_key, unpack
from clickprism.serve.store import AGAIN, PASSWORD_VARIABLE, Found, StoredVersion, StoreInfo, StoreUnavailableError

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
