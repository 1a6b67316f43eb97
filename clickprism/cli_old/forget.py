"""`clickprism forget`: erase users from a log and from all that was derived of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from clickprism.cli_old.options import EngineName, Json, Log, Memory, Quiet
from clickprism.cli_old.output import Output, columns, command_line

EPILOG = (
    "Examples:\n\nclickprism forget logs/shop --user u-4711 --dry-run\n\n"
    "clickprism forget logs/shop --user u-4711 --user u-4712"
)


def command(
    log: Log,
    *,
    user: Annotated[
        list[str] | None,
        typer.Option("--user", metavar="ID", help="Whom to forget; may be repeated. None: finish what was cut short."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    engine: EngineName = "duckdb",
    memory: Memory = "2GB",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Erase all rows of users, and all that was derived of them; afterwards the log has never seen them.

    All snapshots are dropped, and the examination models that learned of their days: make them again by clickprism
    examine and clickprism windows. Input files and copies are yours to delete.
    """
    from clickprism.log.forget import forget
    from clickprism.log.store import PENDING, LogStore

    output = Output(json, quiet)
    store = LogStore.open(log, note=output.note)
    with store.write(engine=engine, memory=memory, finish_erasure=False) as writer:
        if begun := (store.folder / PENDING).exists():
            output.note("An erasure was cut short before: its users are taken too")
        done = forget(store, writer.engine, user or [], dry_run=dry_run)
    nothing = not (done.rows or done.quarantined or begun)
    rows = [
        ["rows of events", f"{done.rows:,}"],
        ["files of events written anew", f"{done.files:,}"],
        ["rows of quarantine", f"{done.quarantined:,}"],
        ["days of sessions made anew", f"{len(done.days):,}"],
        ["examination models dropped", f"{len(done.models):,}"],
        ["snapshots dropped", "all" if done.snapshots else "none"],
    ]
    values = asdict(done) | {"days": [day.isoformat() for day in done.days], "dry_run": dry_run}
    said = "The log has no row of them: nothing to erase. Ids are compared letter by letter, as logged"
    output.result(said if nothing else columns(["would erase" if dry_run else "erased", ""], rows), values)
    if not nothing and not dry_run:
        steps = [command_line("examine", log)] if done.models else []
        output.note(f"Next: {' && '.join([*steps, command_line('windows', log)])}")
        output.note("Input files may still hold them: the log cannot erase those")
