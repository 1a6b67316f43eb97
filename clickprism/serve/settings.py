"""What the service is told when it starts: what it serves, where it listens, its limits."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from clickprism.errors import SettingError

TOKEN_VARIABLE = "CLICKPRISM_TOKEN"  # noqa: S105 - the name of the variable


@final
@dataclass(frozen=True)
class ServeSettings:
    """The settings of the service.

    Attributes:
        source: a bundle, or a deployment that `clickprism promote` fills; a deployment is followed.
        store: where click vectors and features are, for requests that give ids only: a folder or redis://host:port.
        log: the click log that takes events; without one, events are not taken.
        shadow: a bundle that scores every request after its answer, to count where it would have disagreed.
        interleave: a bundle whose ranking is interleaved with that of the source, by team draft.
        host: where to listen; loopback, unless said otherwise.
        port: 0 takes any that is free.
        workers: processes that answer.
        token: what a request must carry as `Authorization: Bearer ...`; None asks for none, on loopback only.
        max_body: bytes of a request.
        max_documents: of a request to rank.
        body_timeout: seconds within which a request's body must arrive.
        answer_timeout: seconds within which an answer must be there.
        max_waiting: requests of a worker that may be under way at a time; more are turned away with 503.
        max_feature_age: seconds after which what the store has is stale; None is never.
        refuse_stale: answer 503 then, rather than with `"stale": true`.
        follow_every: seconds between looks at the deployment's pointer.
        warm_wait: seconds that a worker waits for its model before it listens; then it listens and is not ready.
        drain: seconds that requests have to end when the service is asked to.
        request_lines: write a line of JSON for every request.
        log_queries: say in it the query and its id, which may be personal.

    >>> ServeSettings(Path("bundle"), host="0.0.0.0", token=None)
    Traceback (most recent call last):
    clickprism.errors.SettingError: token must be set when the host is not loopback, got None
    """

    source: Path
    store: str | None = None
    log: Path | None = None
    shadow: Path | None = None
    interleave: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    token: str | None = field(default=None, repr=False)
    max_body: int = 4 << 20
    max_documents: int = 1000
    body_timeout: float = 10.0
    answer_timeout: float = 10.0
    max_waiting: int = 256
    max_feature_age: float | None = None
    refuse_stale: bool = False
    follow_every: float = 0.2
    warm_wait: float = 10.0
    drain: float = 10.0
    request_lines: bool = True
    log_queries: bool = False

    def __post_init__(self) -> None:
        for name, least in (("port", 0), ("workers", 1), ("max_body", 1), ("max_documents", 1), ("max_waiting", 1)):
            if getattr(self, name) < least:
                raise SettingError(name, getattr(self, name), f"be at least {least}")
        if self.port > 65535:
            raise SettingError("port", self.port, "be at most 65535")
        for name in ("body_timeout", "answer_timeout", "follow_every", "drain"):
            if not 0 < getattr(self, name) < math.inf:
                raise SettingError(name, getattr(self, name), "be a number of seconds over 0")
        if self.max_feature_age is not None and not 0 < self.max_feature_age < math.inf:
            raise SettingError("max_feature_age", self.max_feature_age, "be a number of seconds over 0")
        if self.refuse_stale and self.max_feature_age is None:
            raise SettingError("refuse_stale", self.refuse_stale, "be given with max_feature_age")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token):
            raise SettingError(TOKEN_VARIABLE, "...", "be printable ASCII, and not empty")
        if self.token is not None and self.token != self.token.strip():
            raise SettingError(TOKEN_VARIABLE, "...", "neither begin nor end with a space, which no header carries")
        if self.token is None and not is_loopback(self.host):
            raise SettingError("token", None, "be set when the host is not loopback")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
