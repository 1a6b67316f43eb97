"""Who may ask: a bearer token, compared in a time that does not depend on where it differs."""

from __future__ import annotations

import hmac
import secrets
from typing import final

from clickprism.serve.problems import Problem

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
