"""`clickprism quarantine`: the broken rows of a log, and why."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from clickprism.cli.options import OUTPUT, Json, Log, Quiet
from clickprism.cli.output import Output, columns, command_line

EPILOG = "Examples:\n\nclickprism quarantine logs/shop\n\nclickprism quarantine logs/shop --out broken.jsonl"


def command(
    log: Log,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write the bytes of all broken rows to this file, to mend them.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the reasons for which rows were put aside, with counts and examples."""
    from clickprism.log.quarantine import reasons, write_raw
    from clickprism.log.store import LogStore

    store, output = LogStore.open(log), Output(json, quiet)
    found = reasons(store)
    rows = [
        [f"{each.rows:,}", each.code, each.field or "-", f"{Path(each.file).name}:{each.line}", each.raw[:60]]
        for each in found
    ]
    text = columns(["rows", "reason", "field", "first", "its bytes"], rows) if rows else "no broken rows"
    output.result(text, {"rows": sum(each.rows for each in found), "reasons": [asdict(each) for each in found]})
    if out is not None:
        count = write_raw(store, out)
        words = command_line("ingest", out, "--into", log)
        output.note(f"{count:,} rows written to {out}. Mend them, then: {words}")
