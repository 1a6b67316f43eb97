"""`clickprism compact`: put days of events that came in many small files into one file each."""

from __future__ import annotations

from typing import Annotated

import typer

from clickprism.cli_old.options import Json, Log, Quiet
from clickprism.cli_old.output import Output, columns

EPILOG = "Examples:\n\nclickprism compact logs/shop\n\nclickprism compact logs/shop --files 1 --json"


def command(
    log: Log,
    *,
    files: Annotated[int, typer.Option("--files", metavar="N", help="How many files a day may keep.")] = 8,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Put the events of each day with many files into one, with the same rows; nothing else is made anew.

    An ingest does so by itself with the small files of the days that it touched, where they are more than 32. The files
    that are replaced stay for windows.keep_hours.
    """
    from clickprism.log.compact import compact
    from clickprism.log.store import LogStore

    output = Output(json, quiet)
    store = LogStore.open(log, note=output.note)
    with store.write():
        done = compact(store, files=files)
    rows = [["days", f"{len(done.days):,}"], ["files before", f"{done.before:,}"], ["rows", f"{done.rows:,}"]]
    values = {"days": [day.isoformat() for day in done.days], "files_before": done.before, "rows": done.rows}
    said = f"No day has more than {files:,} file{'s' * (files != 1)}: nothing to do"
    output.result(columns(["compacted", ""], rows) if done.days else said, values)
