"""A run is a pure function of its settings, and its result a file, so that no run is done twice."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from clickprism._util.files import write_file

WHOLE: Final = {"run", "seconds", "cpu_seconds"}  # keys of every result


class Run(Protocol):
    """All settings that a result depends on."""

    @property
    def key(self) -> str:
        """Return the name of the file: a hash of all settings."""

    @property
    def log(self) -> Hashable:
        """Return a key of the log; a process does the runs of a log one after another."""

    @property
    def kind(self) -> Hashable:
        """Return a key that runs of similar duration share."""

    def guess(self) -> float:
        """Return the estimated seconds on one core of a recent machine."""

    def make(self, folder: Path | None) -> dict[str, Any]:
        """Compute the result; `folder` has the files of the data."""


def key_of(settings: Mapping[str, Any], *, version: int) -> str:
    """Return a hash of the settings and the version of the results.

    >>> key_of({"a": 1, "b": [2]}, version=1) == key_of({"b": [2], "a": 1}, version=1) != key_of({"a": 1}, version=1)
    True
    """
    text = json.dumps({"version": version, **settings}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def path_of(run: Run, out: Path) -> Path:
    """Return the path of the result of a run."""
    return out / "runs" / f"{run.key}.json"


def finished(out: Path) -> set[str]:
    """Return the names of all result files."""
    folder = out / "runs"
    return set(os.listdir(folder)) if folder.is_dir() else set()


def read(run: Run, out: Path) -> dict[str, Any] | None:
    """Return the result of a run; None if there is no file, or a broken or incomplete one."""
    try:
        result = json.loads(path_of(run, out).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) and result.keys() >= WHOLE else None


def done(run: Run, out: Path) -> bool:
    """Return whether a run has a result."""
    return path_of(run, out).exists() and read(run, out) is not None


def perform(run: Run, out: Path, folder: Path | None) -> dict[str, Any]:
    """Return the result of a run from its file, or compute it and write the file in one step."""
    before = read(run, out)
    if before is not None:
        return before
    result = run.make(folder)
    write_file(path_of(run, out), json.dumps(result, separators=(",", ":"), allow_nan=False))
    return result
