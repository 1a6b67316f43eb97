"""`clickprism quarantine`: the broken rows of a log, why they are broken, and what to do about them."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clickprism.cli_old.options import OUTPUT, Json, Log, Quiet
from clickprism.cli_old.output import Output, columns, command_line

if TYPE_CHECKING:
    from clickprism.log.quarantine import Standing

EPILOG = (
    "Examples:\n\nclickprism quarantine logs/shop\n\n"
    "clickprism quarantine logs/shop --out broken.jsonl --clear\n\n"
    "clickprism quarantine logs/shop --file 'web-*.csv' --reason wrong-type --out broken.csv"
)


def command(
    log: Log,
    *,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="NAME", help="Only rows of this input file: its path, its name, or a pattern."),
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="CODE", help="Only rows with this reason, such as not-json.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write the bytes of these rows to a file that can be mended and ingested.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    clear: Annotated[
        bool,
        typer.Option(
            "--clear", help="Take these rows out of quarantine, with --out those it writes; they count as cleared."
        ),
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the reasons for which rows were put aside, with counts and examples; write them out; clear them."""
    from clickprism.log.quarantine import Chosen, reasons, standing, write_raw
    from clickprism.log.quarantine import clear as clear_rows
    from clickprism.log.readers.chunk import shown
    from clickprism.log.store import LogStore

    output, chosen = Output(json, quiet), Chosen(file, reason)
    store = LogStore.open(log, note=output.note)
    written, cut, cleared = 0, 0, 0
    with store.write():
        found = reasons(store, chosen)
        if out is not None:
            written = write_raw(store, out, chosen)
            cut = sum(each.rows for each in found) - written
        if clear:
            cleared = clear_rows(store, replace(chosen, whole=out is not None))
        counts = standing(store)
    rows = [
        [
            f"{each.rows:,}",
            each.code,
            "-" if each.field is None else each.field if each.value is None else f"{each.field} is '{each.value}'",
            f"{shown(Path(each.file).name)}:{each.line}",
            shown(each.raw),
        ]
        for each in found
    ]
    text = columns(["rows", "reason", "field", "first", "its bytes"], rows) if rows else "no broken rows"
    told = {"rows": sum(each.rows for each in found), "reasons": [asdict(each) for each in found]}
    told |= {"written": written, "cut": cut, "cleared_now": cleared} | asdict(counts)
    output.result(f"{text}\n\n{_account(counts)}" if counts.quarantined else text, told)
    if out is not None:
        output.note(f"{written:,} rows written to {out}. Mend them, then: {command_line('ingest', out, '--into', log)}")
    if cut:
        output.note(f"{cut:,} could not be written: they are too long, or part of a file that cannot be read")
    if clear:
        output.note(f"{cleared:,} rows cleared")


def _account(counts: Standing) -> str:
    parts = [f"{counts.quarantined:,} rows quarantined so far: {counts.standing:,} stand here"]
    parts += [f"{counts.cleared:,} cleared"] if counts.cleared else []
    parts += [f"{counts.forgotten:,} erased with their users"] if counts.forgotten else []
    return ", ".join(parts)
