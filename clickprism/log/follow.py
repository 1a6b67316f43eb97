"""Keeping windows current: a snapshot at each full hour, and whenever the log has changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from clickprism.log.schedule import HOUR, last_hour

Clock = Callable[[], datetime]


def now() -> datetime:
    """The time in UTC, without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)


def follow(
    make: Callable[[datetime], object],
    *,
    state: Callable[[], object],
    clock: Clock = now,
    sleep: Callable[[float], object] = time.sleep,
    poll_seconds: float = 10.0,
    rounds: int | None = None,
) -> None:
    """Call `make` with the last full hour when it begins, and again whenever the state differs; until interrupted.

    Day, week and month follow their schedules of themselves: each ends at its last boundary before that hour.

    Args:
        make: makes the snapshot as of an hour.
        state: what it depends on besides the time, such as the version of the events; it is looked at every
            `poll_seconds`.
        clock: the time, UTC without a zone.
        sleep: waits so many seconds.
        poll_seconds: how often to look.
        rounds: end after so many looks; None for never.

    >>> times = iter([datetime(2026, 3, 4, 9, 59, 58), datetime(2026, 3, 4, 9, 59, 59), datetime(2026, 3, 4, 10)])
    >>> follow(print, state=lambda: 7, clock=lambda: next(times), sleep=lambda seconds: None, rounds=3)
    2026-03-04 09:00:00
    2026-03-04 10:00:00
    """
    done, looks = None, 0
    while rounds is None or looks < rounds:
        looks += 1
        time_now = clock()
        seen = (last_hour(time_now), state())
        if seen != done:
            make(seen[0])
            done = seen
        else:
            until = (seen[0] + HOUR - time_now).total_seconds()
            sleep(max(0.0, min(poll_seconds, until)))
