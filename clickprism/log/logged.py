"""Read any log into `Logged`: an ingested log, a session file, or a simulated log."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from clickprism.data.clicks import load_clicks
from clickprism.data.letor import OnError, PathLike
from clickprism.data.logged import Logged
from clickprism.data.sessions import SessionLog, read_log
from clickprism.errors import DataError, SettingError
from clickprism.log.load import merge_logged
from clickprism.types import Bool, Int64, Lists, Text

DAYS: Final = ("day", "date", "time", "timestamp")
RANKERS: Final = ("ranker", "policy")
RANDOMISED: Final = ("randomised", "randomized")
FLAGS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}
RAW: Final = (".json", ".jsonl", ".ndjson", ".parquet")
PACKED: Final = (".gz", ".zst")
_DATE: Final = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})([T ].*)?")


@dataclass(frozen=True, kw_only=True)
class ReadSettings:
    """How a log is read.

    Attributes:
        day_column: Column of a session file with the day, as dates, times or whole numbers. By default `day`, `date`,
            `time` or `timestamp`, if there is one.
        ranker_column: Column of a session file with the name of the ranker. By default `ranker` or `policy`.
        randomised_column: Column of a session file that is 1 if the list was in random order. By default `randomised`.
        on_error: Stop at the first broken line of a session file (raise), or skip and count such lines (quarantine).
        memory: Memory that the engine may use to read an ingested log, such as 700MB.
    """

    day_column: str | None = None
    ranker_column: str | None = None
    randomised_column: str | None = None
    on_error: OnError = "raise"
    memory: str = "700MB"

    def refuse_columns(self, why: str) -> None:
        """Refuse columns that a log does not have."""
        for name in ("day_column", "ranker_column", "randomised_column"):
            if getattr(self, name) is not None:
                raise SettingError(name, getattr(self, name), f"be omitted: {why}")


READ: Final = ReadSettings()


def read_logged(
    path: PathLike,
    *,
    lists: Lists | None = None,
    settings: ReadSettings = READ,
    columns: Collection[str] = (),
    note: Callable[[str], None] | None = None,
) -> Logged:
    r"""Read a log with everything it records about each list; what it does not record is None.

    Args:
        path: An ingested log (a folder), a session file (TSV, CSV), or a simulated log (.npz).
        lists: The documents of a simulated log, for their features; without them there are none.
        settings: How to read it.
        columns: Other columns of a session file to keep for each list, such as the device.
        note: Called with messages about the progress.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.tsv"
    ...     rows = ["cat\ta,b\tb\t2026-03-01", "cat\ta,b\tb\t2026-03-01", "cat\ta,b\tb\t2026-03-03"]
    ...     _ = file.write_text("\n".join(["query\tdocuments\tclicks\tday", *rows]))
    ...     log = read_logged(file)
    >>> log.clicks, log.days.tolist(), log.policy, log.has_features
    (Clicks(2 ranked lists, 3 sessions, 3 clicks), [0, 2], None, False)
    """
    file = Path(path)
    if file.is_dir():
        settings.refuse_columns("an ingested log records them itself")
        if lists is not None:
            raise SettingError("data", "given", "not be given with a folder: a log has its own documents")
        from clickprism.log.load import read_store

        return read_store(file, memory=settings.memory, note=note)
    if [each for each in file.suffixes if each not in PACKED][-1:] in [[each] for each in RAW]:
        remedy = f"Ingest it first: clickprism log ingest {file.name} --into mylog"
        raise DataError("is a file of events, not a log", file=file, remedy=remedy)
    if not file.exists():
        remedy = "Name a folder that `clickprism log ingest` created, or a session file"
        raise DataError("there is no such file or folder", file=file, remedy=remedy)
    if lists is not None:
        settings.refuse_columns("a simulated log has no columns")
        return merge_logged(Logged(load_clicks(file, lists)))
    return of_sessions(read_log(file, on_error=settings.on_error), settings, columns=columns)


def of_sessions(log: SessionLog, settings: ReadSettings = READ, *, columns: Collection[str] = ()) -> Logged:
    """Return the sessions of a file as `Logged`, with these other columns."""
    day = settings.day_column
    days = _column(log, day, DAYS, "day_column")
    rankers = _column(log, settings.ranker_column, RANKERS, "ranker_column")
    chance = _column(log, settings.randomised_column, RANDOMISED, "randomised_column")
    policy, policies = (None, ()) if rankers is None else _places(rankers[1])
    account = {"sessions": log.clicks.sessions, "clicks outside the list": log.outside}
    account["lines quarantined"] = len(log.quarantined)
    return merge_logged(
        Logged(
            log.clicks,
            None if days is None else _days(*days, asked=day is not None),
            policy,
            policies,
            None if chance is None else np.repeat(_flags(*chance), np.diff(log.clicks.offsets)),
            account={name: count for name, count in account.items() if count},
            columns={name: log.column(name) for name in columns},
        )
    )


def _column(log: SessionLog, wanted: str | None, usual: tuple[str, ...], what: str) -> tuple[str, Text] | None:
    if wanted is not None:
        if wanted not in log.columns:
            has = ", ".join(log.columns) or "none besides query, documents and clicks"
            raise SettingError(what, wanted, f"be a column of the log, which has {has}")
        return wanted, log.columns[wanted]
    found = next((name for name in usual if name in log.columns), None)
    return None if found is None else (found, log.columns[found])


def _days(name: str, values: Text, *, asked: bool) -> Int64 | None:
    """Days from the first on; None where a column that nobody asked for does not look like days."""
    kinds, place = np.unique(values, return_inverse=True)
    texts = [each.strip() for each in kinds.tolist()]
    dates = [_DATE.fullmatch(each) for each in texts]
    wrong = next((each for each, date in zip(texts, dates, strict=True) if date is None), texts[0])
    whole = asked or name in DAYS[:2]
    try:
        if any(dates) or not whole:
            named = ["wrong" if date is None else "-".join(date.groups()[:3]) for date in dates]
            days = np.array(named, dtype="datetime64[D]").astype(np.int64)
        else:
            days = np.array([int(each) for each in texts], dtype=np.int64)
    except (ValueError, OverflowError):
        if not asked:
            return None
        remedy = "Give days as 2026-03-01, or as whole numbers"
        raise DataError(f"column {name!r} has a value that is no day: {wrong!r}", remedy=remedy) from None
    made: Int64 = (days - days.min())[place]
    return made


def _flags(name: str, values: Text) -> Bool:
    kinds, place = np.unique(values, return_inverse=True)
    texts = [each.strip().lower() for each in kinds.tolist()]
    wrong = [each for each in texts if each not in FLAGS]
    if wrong:
        raise DataError(f"column {name!r} has {wrong[0]!r}, which is neither 1 nor 0", remedy="Give 1 or 0")
    made: Bool = np.array([FLAGS[each] for each in texts], dtype=np.bool_)[place]
    return made


def _places(values: Text) -> tuple[Int64, tuple[str, ...]]:
    kinds, place = np.unique(values, return_inverse=True)
    return place.astype(np.int64), tuple(each or "not named" for each in kinds.tolist())
