"""Who may ask: a bearer token, compared in a time that does not depend on where it differs."""

from __future__ import annotations

import hmac
import re
import secrets
from functools import lru_cache
from typing import final

from clickprism.serve.problems import Problem
from clickprism.serve.settings import is_loopback

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::[0-9]*)?")
_CHALLENGE = ((b"www-authenticate", b'Bearer realm="clickprism"'),)


def new_token() -> str:
    """A token that no one can guess."""
    return secrets.token_urlsafe(24)


@final
class Authority:
    """Lets a request pass by its `Authorization` header.

    >>> Authority("secret").check(b"Bearer secret")
    >>> Authority(None).check(None)
    >>> Authority("secret").check(b"Bearer guess")
    Traceback (most recent call last):
    clickprism.serve.problems.Problem: the token is not that of this service
    """

    def __init__(self, token: str | None) -> None:
        self._token = None if token is None else token.encode()

    def check_host(self, header: bytes) -> None:
        """Without a token, raise a problem of status 421 unless the `Host` is this machine.

        A page of another host can have its name point to this machine, and so make a browser here ask for it.
        """
        if self._token is None and not _is_here(header):
            detail = "without a token the service answers to names of this machine only, such as localhost"
            raise Problem(421, detail, kind="host")

    def check(self, header: bytes | None) -> None:
        """Raise a problem of status 401 unless the header carries the token."""
        if self._token is None:
            return
        if header is None:
            detail = "a token is needed: send it as Authorization: Bearer ..."
            raise Problem(401, detail, kind="unauthorised", headers=_CHALLENGE)
        scheme, _, given = header.partition(b" ")
        if not (scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token)):
            raise Problem(401, "the token is not that of this service", kind="unauthorised", headers=_CHALLENGE)


@lru_cache(64)
def _is_here(header: bytes) -> bool:
    """Whether a `Host` header names this machine.

    >>> _is_here(b"localhost:8000"), _is_here(b"[::1]:8000"), _is_here(b"127.0.0.1"), _is_here(b"evil.example:8000")
    (True, True, True, False)
    """
    found = _HOST.fullmatch(header.decode("latin-1").lower())
    return found is not None and is_loopback(found[1] or found[2])
