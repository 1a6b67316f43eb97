"""Who may see the page: whoever gave the token keeps a cookie that says until when, signed with the token."""

from __future__ import annotations

import hmac
import time
from typing import Final, final

NAME: Final = b"clickprism"
SECONDS: Final = 12 * 3600
_RULES: Final = b"; Path=/; HttpOnly; SameSite=Strict"


@final
class Sessions:
    """Cookies of a token; without a token no one needs one.

    >>> sessions = Sessions("secret")
    >>> cookie = sessions.opened()
    >>> sessions.knows(cookie), sessions.knows(b"clickprism=1.00"), Sessions("other").knows(cookie)
    (True, False, False)
    """

    def __init__(self, token: str | None) -> None:
        self._token = None if token is None else token.encode()

    @property
    def needed(self) -> bool:
        """Whether the service has a token at all."""
        return self._token is not None

    def is_token(self, given: str) -> bool:
        """Whether this is the token, in a time that does not depend on where it differs."""
        return self._token is not None and hmac.compare_digest(given.strip().encode(), self._token)

    def opened(self) -> bytes:
        """The `Set-Cookie` of someone who gave the token."""
        until = int(time.time()) + SECONDS
        return NAME + b"=" + self._signed(until) + _RULES + b"; Max-Age=" + str(SECONDS).encode()

    @staticmethod
    def closed() -> bytes:
        """The `Set-Cookie` that takes it away."""
        return NAME + b"=" + _RULES + b"; Max-Age=0"

    def knows(self, header: bytes | None) -> bool:
        """Whether a `Cookie` header has a cookie of this token that is not too old."""
        if self._token is None:
            return True
        for part in (header or b"").split(b";"):
            name, _, value = part.strip().partition(b"=")
            until = value.partition(b".")[0]
            if name == NAME and until.isdigit() and len(until) < 16 and int(until) > time.time():
                return hmac.compare_digest(value, self._signed(int(until)))
        return False

    def _signed(self, until: int) -> bytes:
        text = str(until).encode()
        return text + b"." + hmac.digest(self._token or b"", b"page " + text, "sha256").hex().encode()
