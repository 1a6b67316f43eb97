"""metrics.jsonl: one line an epoch, or a validation of trees, for whoever plots or watches a run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from clickprism._util.files import write_file
from clickprism.training.settings import Record

NAME = "metrics.jsonl"


def start(out: Path | None, history: Iterable[Record] = ()) -> None:
    """Begin the file anew, or, when a run is resumed, with what was before."""
    if out is not None:
        write_file(out / NAME, "".join(map(_line, history)), durable=False)


def add(out: Path | None, record: Record) -> None:
    """Add a line."""
    if out is not None:
        with (out / NAME).open("a", encoding="utf-8") as file:
            file.write(_line(record))


def _line(record: Record) -> str:
    return json.dumps(asdict(record)) + "\n"
