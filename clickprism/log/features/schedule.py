"""When each window begins and ends: pure functions of a time T, in UTC.

The schedules of the approximated doubly robust paper (§6.1.2): the daily dictionary is updated every hour and holds
the last 24 hours, the weekly one every day and holds the last 7 days, the monthly one every weekend and holds the
last 4 weeks. Each ends at the last boundary of its schedule at or before T.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from clickprism.errors import SettingError

HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)


@dataclass(frozen=True)
class Window:
    """A stretch of time from `start` on, before `end`; whole hours of UTC, without a zone."""

    name: str
    start: datetime
    end: datetime

    @property
    def hours(self) -> int:
        """Length of the window in hours."""
        return (self.end - self.start) // HOUR

    @property
    def days(self) -> list[date]:
        """The days it touches, in order."""
        last = (self.end - timedelta(microseconds=1)).date()
        return [self.start.date() + n * DAY for n in range((last - self.start.date()).days + 1)]


def schedule(as_of: datetime) -> tuple[Window, Window, Window]:
    """Return the day, the week and the month as of a time (UTC, without a zone); the month moves on each Monday.

    >>> for window in schedule(datetime(2026, 3, 4, 15, 59)):
    ...     print(window.name, window.start, window.end)
    day 2026-03-03 15:00:00 2026-03-04 15:00:00
    week 2026-02-25 00:00:00 2026-03-04 00:00:00
    month 2026-02-02 00:00:00 2026-03-02 00:00:00
    """
    hour = as_of.replace(minute=0, second=0, microsecond=0)
    midnight = hour.replace(hour=0)
    try:
        monday = midnight - midnight.weekday() * DAY
        return (
            Window("day", hour - DAY, hour),
            Window("week", midnight - 7 * DAY, midnight),
            Window("month", monday - 28 * DAY, monday),
        )
    except OverflowError:
        raise SettingError("as_of", str(as_of), "be later than the first month of the calendar") from None


def parse_time(text: str, *, field: str = "as_of") -> datetime:
    """Return a time in UTC from ISO 8601: a day, or a day with a time, with or without a zone (none means UTC).

    >>> parse_time("2026-03-04"), parse_time("2026-03-04T15:30:00+01:00")
    (datetime.datetime(2026, 3, 4, 0, 0), datetime.datetime(2026, 3, 4, 14, 30))
    >>> parse_time("soon")
    Traceback (most recent call last):
    clickprism.errors.SettingError: as_of must be a time such as 2026-03-04T15:00 (UTC), got 'soon'
    """
    try:
        read = datetime.fromisoformat(text)
        return read if read.tzinfo is None else read.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise SettingError(field, text, "be a time such as 2026-03-04T15:00 (UTC)") from None


def midnight_after(day: date) -> datetime:
    """Return the end of a day."""
    return datetime.combine(day, time()) + DAY


def day_span(text: str | None) -> tuple[date, date] | None:
    """Return the first and the last day of a text such as 2026-01-01..2026-01-28, or of one day.

    >>> day_span("2026-01-01..2026-01-03")
    (datetime.date(2026, 1, 1), datetime.date(2026, 1, 3))
    """
    if text is None:
        return None
    first, _, last = text.partition("..")
    try:
        span = date.fromisoformat(first.strip()), date.fromisoformat((last or first).strip())
    except ValueError:
        raise SettingError("days", text, "be two days such as 2026-01-01..2026-01-28, or one day") from None
    if span[0] > span[1]:
        raise SettingError("days", text, "have the earlier day first")
    return span


def days_of(text: str | None) -> list[date] | None:
    """Return all days of such a text; None for no text, which means all days of a log."""
    span = day_span(text)
    return None if span is None else [span[0] + number * DAY for number in range((span[1] - span[0]).days + 1)]


Clock = Callable[[], datetime]


def now() -> datetime:
    """Return the time in UTC, without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)
