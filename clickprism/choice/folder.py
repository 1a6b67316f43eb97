"""The folder of a search: one process at work in it, for one log and one choice of settings."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from clickprism.errors import DataError
from clickprism.evaluation.report import write_whole

LOCK: Final = ".lock"
START: Final = "start.json"


@contextmanager
def only_one(folder: Path, command: str) -> Iterator[None]:
    """Be the only one of this command at work in a folder; the lock ends with the process."""
    with (folder / LOCK).open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            remedy = "Wait until it is done, or choose another --out"
            raise DataError(f"another clickprism {command} is at work there", file=folder, remedy=remedy) from None
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
    if not file.is_file():
        for draft in folder.glob(f".{START}.*"):
            draft.unlink(missing_ok=True)
        refuse_strange(folder, "tune")
        write_whole(file, json.dumps(identity, indent=1) + "\n")
    elif read_json(file, remedy="Remove the folder, to begin anew") != identity:
        remedy = "Choose another --out, or remove the folder to begin anew"
        raise DataError("is of another log or of other settings", file=folder, remedy=remedy)
    for draft in (*folder.rglob(".*.npz"), *folder.rglob(".*.json.*")):
        draft.unlink(missing_ok=True)


def read_json(file: Path, *, remedy: str = "Remove it: it is made anew") -> dict[str, Any]:
    """The object of a file; an error where it is damaged."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        kept = None
    if not isinstance(kept, dict):
        raise DataError("is damaged", file=file, remedy=remedy)
    return kept
