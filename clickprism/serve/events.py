"""Events that come over the network, straight into the ingest of a log: durable before the answer, counted once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from clickprism.errors import ClickprismError, SettingError


class EventsRefusedError(ClickprismError):
    """The batch as a whole cannot be taken, now or ever (422)."""


class EventsConflictError(ClickprismError):
    """The idempotency key was used before with other content (409)."""


class EventsTooLargeError(ClickprismError):
    """The batch has more bytes or rows than are allowed (413)."""


class EventsBusyError(ClickprismError):
    """Too many batches wait, or the log cannot be written now (503): send the same again, with the same key."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@final
@dataclass(frozen=True)
class RowAnswer:
    """What became of one row: its number in the batch from 1, and why it does not count where it does not."""

    row: int
    status: Literal["accepted", "duplicate", "quarantined", "ignored"]
    reason: str | None = None


@final
@dataclass(frozen=True)
class EventSettings:
    """Limits of a sink.

    Attributes:
        max_bytes: of a batch.
        max_rows: of a batch.
        max_waiting: batches that wait in one process; more are sent away.
        timeout: seconds that a batch waits for its answer.
        group_seconds: at least so long from one commit to the next, so that small batches go in together.
        keep_hours: how long answers are kept for a batch that comes again.
    """

    max_bytes: int = 4 << 20
    max_rows: int = 20_000
    max_waiting: int = 256
    timeout: float = 30.0
    group_seconds: float = 0.5
    keep_hours: float = 72.0

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_rows", "max_waiting", "timeout", "keep_hours"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SettingError(name, getattr(self, name), "be above 0")
        if not 0 <= self.group_seconds < float("inf"):
            raise SettingError("group_seconds", self.group_seconds, "be 0 or more")


class EventSink:
    """The door to a log for batches of events; one a process, safe to use from several threads.

    Args:
        log: the folder of the log; it is made if missing.
        settings: limits.
    """

    def __init__(self, log: Path | str, settings: EventSettings | None = None) -> None:
        self.log = Path(log)
        self.settings = settings or EventSettings()

    def accept(self, body: bytes, *, key: str) -> list[RowAnswer]:
        """Put a batch into the log and say what became of each row; blocks until it is there."""
        raise NotImplementedError

    def close(self) -> None:
        """Finish what waits, then take nothing more."""
