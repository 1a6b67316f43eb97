"""A raw log to try things on: simulated people and robots search for days, and their rows go into files, as rows do.

The truth lies beside them: what was seen, how relevant it is, who is a robot, and what an honest account of the rows
must say. Everything is made day by day, some thousand searches at a time, so memory does not grow with the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from clickprism._util.files import make_folder
from clickprism.errors import DataError, missing_extra
from clickprism.settings import choose
from clickprism.simulation.raw_behaviour import behaviour
from clickprism.simulation.raw_files import RawWriter
from clickprism.simulation.raw_searches import Crowd
from clickprism.simulation.raw_settings import RawLogSettings
from clickprism.simulation.raw_world import World
from clickprism.users import USERS
from clickprism.users.base import User, adapted
from clickprism.users.popularity import PopularityUser, item_ids

CHUNK: Final = 10_000  # searches made at a time, and the most in a file


@final
@dataclass(frozen=True)
class RawLog:
    """What was written.

    Attributes:
        folder: with `events/` (the log), `truth/` (a row for each document shown) and `truth/summary.json`.
        summary: exact counts: `searches`, `impressions`, `clicks`, `robots` and `broken` by kind, `late`, `files`, and
            `account` with `in`, `accepted`, `duplicate`, `filtered`, `quarantined`, as an ingest must find them.
    """

    folder: Path
    summary: dict[str, Any]


def write_raw_log(
    folder: Path, settings: RawLogSettings | None = None, *, progress: Callable[[int, int], None] | None = None
) -> RawLog:
    """Simulate a raw log into a new folder.

    Args:
        folder: to be made; it must not hold a log yet.
        settings: how much of everything there is.
        progress: called after each day with its number from 1 and the days in all.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as scratch:
    ...     log = write_raw_log(Path(scratch), RawLogSettings(searches=50, days=2, robots=0))
    ...     sorted(path.name for path in (log.folder / "events").iterdir())[:2], log.summary["searches"]
    (['2024-01-01-0.jsonl.zst', '2024-01-02-0.jsonl.zst'], 50)
    """
    settings = RawLogSettings() if settings is None else settings
    user: User = choose(USERS, settings.user, path="user")
    for made in (folder / "events", folder / "truth"):
        make_folder(made)
        if any(made.iterdir()):
            raise DataError("is not empty", file=made, remedy="Name a new folder, or remove the log in this one first")
    try:
        writer = RawWriter(folder, settings)
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    world = World(settings)
    crowd = Crowd(world, settings)
    user = adapted(user, world.judged, seed=settings.seed)
    for day in range(settings.days):
        searches, clicks = crowd.searches(day), np.zeros_like(world.clicks)
        today = _after(user, world)
        parts = max(settings.files_per_day, -(-len(searches) // CHUNK))
        for part in range(parts):
            some = slice(len(searches) * part // parts, len(searches) * (part + 1) // parts)
            shown = behaviour(searches.part(some), world, today, settings, day=day, first=writer.searches)
            np.add.at(
                clicks, shown["row"].to_numpy()[shown["click"].to_numpy() & shown["robot"].is_null().to_numpy()], 1
            )
            writer.add(shown, day=day, part=part, searches=some.stop - some.start)
        world.clicks += clicks
        if progress is not None:
            progress(day + 1, settings.days)
    return RawLog(folder, writer.finish())


def _after(user: User, world: World) -> User:
    """The user as the clicks of the days before have made it."""
    if not isinstance(user, PopularityUser) or not world.clicks.any():
        return user
    items, which = np.unique(item_ids(world.judged.lists), return_inverse=True)
    return user.after(items, np.bincount(which, weights=world.clicks))
