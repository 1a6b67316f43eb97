"""The folder of a search: one process at work in it, for one log and one choice of settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from clickprism._util.files import DRAFT, lock, read_json, write_file
from clickprism.errors import DataError

LOCK: Final = ".lock"
START: Final = "start.json"


@contextmanager
def only_one(folder: Path, command: str) -> Iterator[None]:
    """Be the only one of this command at work in a folder; the lock ends with the process."""

    def refuse() -> None:
        remedy = "Wait until it is done, or choose another --out"
        raise DataError(f"another clickprism {command} is at work there", file=folder, remedy=remedy)

    with lock(folder / LOCK, waiting=refuse):
        yield


def refuse_strange(folder: Path, command: str) -> None:
    """An error where a folder that no search began in holds anything."""
    strange = sorted(entry.name for entry in folder.iterdir() if entry.name != LOCK)
    if strange:
        remedy = "Choose a folder that is empty, or not there yet"
        raise DataError(f"holds {strange[0]}, which is not of clickprism {command}", file=folder, remedy=remedy)


def begin(folder: Path, identity: Mapping[str, Any]) -> None:
    """Refuse a folder of another log or of other settings; what a killed process left half written is cleared."""
    file = folder / START
    for draft in folder.rglob(f".*{DRAFT}"):
        draft.unlink(missing_ok=True)
    if not file.is_file():
        refuse_strange(folder, "tune")
        write_file(file, json.dumps(identity, indent=1) + "\n")
    elif read_json(file, remedy="Remove the folder, to begin anew") != identity:
        remedy = "Choose another --out, or remove the folder to begin anew"
        raise DataError("is of another log or of other settings", file=folder, remedy=remedy)
