"""A run is a pure function of its settings, and its result a file, so that no run is done twice."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from clickprism._util.files import write_file

WHOLE: Final = {"run", "seconds", "cpu_seconds"}  # what every result has: the settings, and what it took


class Run(Protocol):
    """All that a result depends on."""

    @property
    def key(self) -> str:
        """Names the file: a hash of all settings."""

    @property
    def log(self) -> Hashable:
        """What runs on the same log have in common: a process does them one after another."""

    @property
    def kind(self) -> Hashable:
        """What runs that take alike long have in common."""

    def guess(self) -> float:
        """Seconds that it takes on one core of a recent machine."""

    def make(self, folder: Path | None) -> dict[str, Any]:
        """Do it; `folder` is where the files of the data are."""


def key_of(settings: Mapping[str, Any], *, version: int) -> str:
    """A hash of settings; another version makes every run anew.

    >>> key_of({"a": 1, "b": [2]}, version=1) == key_of({"b": [2], "a": 1}, version=1) != key_of({"a": 1}, version=1)
    True
    """
    text = json.dumps({"version": version, **settings}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def path_of(run: Run, out: Path) -> Path:
    """Where the result of a run is, or will be."""
    return out / "runs" / f"{run.key}.json"


def finished(out: Path) -> set[str]:
    """The names of all result files."""
    folder = out / "runs"
    return set(os.listdir(folder)) if folder.is_dir() else set()


def read(run: Run, out: Path) -> dict[str, Any] | None:
    """The result of a run, if there is one; a broken file is none, nor is one that lacks what every result has."""
    try:
        result = json.loads(path_of(run, out).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) and result.keys() >= WHOLE else None


def done(run: Run, out: Path) -> bool:
    """Whether a run has its file, and it is a result."""
    return path_of(run, out).exists() and read(run, out) is not None


def perform(run: Run, out: Path, folder: Path | None) -> dict[str, Any]:
    """The result of a run, from its file or made now; the file appears whole or not at all."""
    before = read(run, out)
    if before is not None:
        return before
    result = run.make(folder)
    write_file(path_of(run, out), json.dumps(result, separators=(",", ":"), allow_nan=False))
    return result
