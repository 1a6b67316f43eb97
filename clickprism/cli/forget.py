"""`clickprism forget`: erase users from a log and from all that was derived of it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from clickprism.cli.options import Json, Quiet
from clickprism.cli.output import Output, columns, command_line

EPILOG = (
    "Examples:\n\nclickprism forget logs/shop --user u-4711 --dry-run\n\n"
    "clickprism forget logs/shop --user u-4711 --user u-4712"
)


def command(
    log: Annotated[Path, typer.Argument(metavar="DIR", help="A click log, made by clickprism ingest.")],
    *,
    user: Annotated[list[str], typer.Option("--user", metavar="ID", help="Whom to forget; may be repeated.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME", help="duckdb, local[*] (Spark here) or spark://host:port.")
    ] = "duckdb",
    memory: Annotated[str, typer.Option("--memory", metavar="SIZE", help="What the engine may hold.")] = "2GB",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Erase all rows of users, and all that was derived of them; afterwards the log has never seen them."""
    from clickprism.log.engine import connect
    from clickprism.log.forget import forget
    from clickprism.log.store import LogStore

    store, output = LogStore.open(log), Output(json, quiet)
    with (
        connect(engine, memory=memory) as running,
        store.lock(waiting=lambda: output.note("Another process is writing to this log: waiting for it")),
    ):
        done = forget(store, running, user, dry_run=dry_run)
    rows = [
        ["rows of events", f"{done.rows:,}"],
        ["files of events written anew", f"{done.files:,}"],
        ["rows of quarantine", f"{done.quarantined:,}"],
        ["days of sessions made anew", f"{len(done.days):,}"],
        ["examination models dropped", f"{len(done.models):,}"],
        ["snapshots dropped", "all" if done.snapshots else "none"],
    ]
    values = asdict(done) | {"days": [day.isoformat() for day in done.days], "dry_run": dry_run}
    output.result(columns(["would erase" if dry_run else "erased", ""], rows), values)
    if not (done.rows or done.quarantined):
        output.note("The log has no row of them. Ids are compared letter by letter, as logged")
    elif not dry_run:
        steps = [command_line("examine", log)] if done.models else []
        output.note(f"Next: {' && '.join([*steps, command_line('windows', log)])}")
        output.note("Input files may still hold them: the log cannot erase those")
