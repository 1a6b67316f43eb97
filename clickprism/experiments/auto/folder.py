"""The folder of `auto`: each stage's result is a file that appears whole, so that a second call goes on from there."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, final

from clickprism._util.crash_points import crash_point
from clickprism._util.files import make_folder, write_file
from clickprism._util.tables import to_json
from clickprism.choice.folder import START, only_one, refuse_strange
from clickprism.data.logged import Logged
from clickprism.errors import DataError
from clickprism.experiments.train import fingerprint

STAGES: Final = ("read", "diagnosis", "choice", "value", "bundle", "report")
POINTS: Final = tuple(f"{stage}-{what}" for stage in STAGES for what in ("made", "kept"))
"""Where a test may end the process: a stage is done but not kept, or kept."""
KEPT: Final = "stages"
EPOCH: Final = "SOURCE_DATE_EPOCH"


@final
@dataclass(frozen=True)
class Stage:
    """What a stage came to.

    Attributes:
        result: plain values, as its file has them.
        seconds: what it took, when it was done.
    """

    result: Mapping[str, Any]
    seconds: float


@final
@dataclass(frozen=True)
class AutoFolder:
    """The folder, for one log and one choice of settings.

    Attributes:
        path: of the folder.
        started: when it was first used, in UTC.
    """

    path: Path
    started: datetime

    @classmethod
    @contextmanager
    def opened(cls, path: Path, *, log: str, settings: Mapping[str, Any]) -> Iterator[AutoFolder]:
        """Be the only one at work in a folder; one of another log or of other settings is refused.

        Args:
            path: made if it is not there.
            log: the log's fingerprint.
            settings: all that a result depends on.
        """
        make_folder(path)
        with only_one(path, "auto"):
            yield cls(path, _begin(path, log, settings))

    def done(self, name: str) -> bool:
        """Whether a stage was done before."""
        return self._file(name).is_file()

    def _file(self, name: str) -> Path:
        return self.path / KEPT / f"{name}.json"

    def stage(self, name: str, make: Callable[[], Mapping[str, Any]], *, spent: float = 0.0) -> Stage:
        """What a stage came to: as its file says, or made now and kept; `spent` are seconds it took before."""
        file = self._file(name)
        if file.is_file():
            kept = _read(file)
            try:
                return Stage(kept["result"], float(kept["seconds"]))
            except (KeyError, TypeError, ValueError):
                raise _damaged(file) from None
        begun = time.perf_counter()
        made = make()
        seconds = round(spent + time.perf_counter() - begun, 3)
        crash_point(f"{name}-made")
        text = to_json({"stage": name, "seconds": seconds, "result": made}) + "\n"
        write_file(file, text)
        crash_point(f"{name}-kept")
        return Stage(json.loads(text)["result"], seconds)


def fingerprint_of(logged: Logged) -> str:
    """16 digits of a SHA-256 over all that a log tells.

    >>> import numpy as np
    >>> from clickprism.types import Clicks, Lists
    >>> lists = Lists(np.zeros((2, 1), np.float32), np.array([0, 2]), np.array(["q"]))
    >>> clicks = Clicks(lists, np.array([0, 2]), np.array([0, 1]), np.array([1, 2]), np.array([3, 0]), np.array([9]))
    >>> fingerprint_of(Logged(clicks)) == fingerprint_of(Logged(clicks, days=np.array([0])))
    False
    """
    clicks = logged.clicks
    found = hashlib.sha256(fingerprint(clicks.lists).encode())
    told = (logged.days, logged.policy, logged.randomised, clicks.weights, clicks.seen)
    counts = (clicks.offsets, clicks.rows, clicks.positions, clicks.clicks, clicks.impressions)
    for values in (*counts, *told):
        if values is None:
            found.update(b"none")
            continue
        kind = "<f8" if values.dtype.kind == "f" else "<i8"
        found.update(repr(values.shape).encode())
        found.update(values.astype(kind).tobytes())
    ids = () if clicks.lists.document_ids is None else clicks.lists.document_ids.tolist()
    for names in (logged.policies, logged.feature_names, ids):
        found.update("\0".join(map(str, names)).encode() + b"\1")
    return found.hexdigest()[:16]


def _begin(path: Path, log: str, settings: Mapping[str, Any]) -> datetime:
    """When the folder was first used; what a killed process left half written is cleared."""
    file = path / START
    for folder in (path, path / KEPT):
        for draft in folder.glob(".*.json.*"):
            draft.unlink(missing_ok=True)
    if not file.is_file():
        refuse_strange(path, "auto")
        now = _now()
        about = {"format": "clickprism auto", "version": 1, "started": now.isoformat(), "log": log}
        write_file(file, to_json({**about, "settings": settings}) + "\n")
        return now
    kept = _read(file)
    if kept.get("log") != log:
        remedy = "Choose another --out, or remove the folder to begin anew"
        raise DataError("is of another log, or of this one before it changed", file=path, remedy=remedy)
    others = {name: value for name, value in kept.get("settings", {}).items() if settings.get(name) != value}
    if others or set(settings) - set(kept.get("settings", {})):
        was = ", ".join(f"{name} {value}" for name, value in others.items())
        remedy = "Call it with the same settings, choose another --out, or remove the folder to begin anew"
        raise DataError(f"was made with other settings ({was or 'fewer'})", file=path, remedy=remedy)
    try:
        return datetime.fromisoformat(kept["started"])
    except (KeyError, TypeError, ValueError):
        raise _damaged(file) from None


def _now() -> datetime:
    """Now, or the time that SOURCE_DATE_EPOCH names, for folders that are to be alike to the byte."""
    told = os.environ.get(EPOCH, "")
    return datetime.fromtimestamp(int(told), UTC) if told.isdecimal() else datetime.now(UTC).replace(microsecond=0)


def _read(file: Path) -> dict[str, Any]:
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        raise _damaged(file) from None
    if not isinstance(kept, dict):
        raise _damaged(file)
    return kept


def _damaged(file: Path) -> DataError:
    what = "the folder, to begin anew" if file.name == START else "it: what it held is made anew"
    return DataError("is damaged", file=file, remedy=f"Remove {what}")
