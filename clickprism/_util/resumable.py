"""A folder of results that an interrupted command continues: each stage writes one file, completely or not at all."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias, final

from clickprism._util.crash_points import crash_point
from clickprism._util.files import DRAFT, lock, make_folder, read_json, write_file
from clickprism._util.tables import to_json, to_plain
from clickprism.errors import DataError

START, LOCK, KEPT = "start.json", ".lock", "stages"
FORMAT: Final = 2
EPOCH: Final = "SOURCE_DATE_EPOCH"
Plain: TypeAlias = Mapping[str, Any]


@final
@dataclass(frozen=True)
class Stage:
    """The result of a stage, as plain values, and the time in seconds that it took."""

    result: Plain
    seconds: float


@final
@dataclass(frozen=True)
class StageFolder:
    """The folder of one run of a command.

    Attributes:
        path: The folder.
        started: When it was first used (UTC), or the time in SOURCE_DATE_EPOCH.
    """

    path: Path
    started: datetime

    @classmethod
    @contextmanager
    def opened(cls, path: Path, *, command: str, identity: Plain) -> Iterator[StageFolder]:
        """Lock a folder, and check that it belongs to this run; it is created if it is missing.

        Args:
            path: The folder.
            command: Name of the command.
            identity: Everything that the results depend on: "log", the fingerprint of the input, and settings.
        """
        make_folder(path)

        def refuse() -> None:
            remedy = "Wait until it has finished, or choose another --out"
            raise DataError(f"another clickprism {command} is using this folder", file=path, remedy=remedy)

        with lock(path / LOCK, waiting=refuse):
            yield cls(path, _begin(path, command, to_plain(identity)))

    def done(self, name: str) -> bool:
        """Return whether a stage is complete."""
        return (self.path / KEPT / f"{name}.json").is_file()

    def stage(self, name: str, make: Callable[[], Plain], *, spent: float = 0.0) -> Stage:
        """Return the result of a stage from its file, or run it and write the file.

        Args:
            name: Name of the stage.
            make: Runs the stage.
            spent: Time in seconds that the stage took before.
        """
        file = self.path / KEPT / f"{name}.json"
        remedy = f"Delete {file.name} and run the same command again: the stage is repeated"
        if file.is_file():
            kept = read_json(file, remedy=remedy)
            try:
                return Stage(dict(kept["result"]), float(kept["seconds"]))
            except (KeyError, TypeError, ValueError):
                raise DataError("is damaged", file=file, remedy=remedy) from None
        begun = time.perf_counter()
        made = make()
        seconds = 0.0 if fixed_time() else round(spent + time.perf_counter() - begun, 3)
        crash_point(f"{name}-made")
        text = to_json({"stage": name, "seconds": seconds, "result": made}) + "\n"
        write_file(file, text)
        crash_point(f"{name}-kept")
        return Stage(json.loads(text)["result"], seconds)


def _begin(path: Path, command: str, identity: dict[str, Any]) -> datetime:
    """Return when the folder was first used; delete files that an interrupted run did not finish."""
    for draft in path.rglob(f".*{DRAFT}"):
        if draft.is_dir():
            shutil.rmtree(draft, ignore_errors=True)
        else:
            draft.unlink(missing_ok=True)
    file, again = path / START, "Choose another --out, or delete the folder to start again"
    if not file.is_file():
        expected = (LOCK, "log")  # "log" is the ingested copy of raw events
        strange = sorted(entry.name for entry in path.iterdir() if entry.name not in expected)
        if strange:
            remedy = "Choose a folder that is empty or does not exist"
            raise DataError(f"contains {strange[0]}, which is not from clickprism {command}", file=path, remedy=remedy)
        now = start_time()
        about = {"format": f"clickprism {command}", "version": FORMAT, "started": now.isoformat()}
        write_file(file, to_json({**about, "identity": identity}) + "\n")
        return now
    kept = read_json(file, remedy="Delete the folder to start again")
    was = kept.get("identity")
    if kept.get("format") != f"clickprism {command}" or kept.get("version") != FORMAT or not isinstance(was, dict):
        raise DataError("was written by another command or version of clickprism", file=path, remedy=again)
    if was.get("log") != identity.get("log"):
        raise DataError("belongs to another log, or the log has changed since", file=path, remedy=again)
    others = {name: value for name, value in was.items() if name not in identity or identity[name] != value}
    if others or identity.keys() - was.keys():
        named = ", ".join(f"{name} {value}" for name, value in others.items()) or "fewer"
        raise DataError(f"was written with other settings ({named})", file=path, remedy=again)
    try:
        return datetime.fromisoformat(kept["started"])
    except (KeyError, TypeError, ValueError):
        raise DataError("is damaged", file=file, remedy="Delete the folder to start again") from None


def start_time() -> datetime:
    """Return the current time in whole seconds, or the time of SOURCE_DATE_EPOCH if it is set."""
    return fixed_time() or datetime.now(UTC).replace(microsecond=0)


def fixed_time() -> datetime | None:
    """Return the time in SOURCE_DATE_EPOCH, with which two runs write the same bytes; None if it is not set."""
    given = os.environ.get(EPOCH, "")
    return datetime.fromtimestamp(int(given), UTC) if given.isdecimal() else None
