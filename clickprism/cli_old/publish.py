"""`clickprism publish`: the click features of a log, and a ranker's own, into the online store that serving reads."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clickprism.cli_old.options import OUTPUT, SETTINGS, Json, Memory, Quiet
from clickprism.cli_old.output import Output, columns

if TYPE_CHECKING:
    from clickprism.serve.publish import Published

_POLL_SECONDS = 10.0
EPILOG = (
    "Examples:\n\nclickprism publish logs/shop --to stores/shop\n\n"
    "clickprism publish logs/shop --features features.parquet --imputed imputed.parquet --to stores/shop\n\n"
    "clickprism publish logs/shop --to stores/shop --follow\n\n"
    "clickprism publish --features features.csv --to 'redis://127.0.0.1:6379/0?prefix=shop'"
)


def command(
    log: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A click log whose snapshot in force is published.")
    ] = None,
    *,
    to: Annotated[
        str, typer.Option("--to", metavar="DIR|URL", help="A folder (LMDB), or redis://host:port/0?prefix=name.")
    ],
    features: Annotated[
        Path | None,
        typer.Option(
            "--features",
            metavar="FILE",
            help="Also these: query_id, document_id, and numbers; .parquet, .csv or .jsonl.",
        ),
    ] = None,
    imputed: Annotated[
        Path | None,
        typer.Option("--imputed", metavar="FILE", help="Also these, of clickprism impute --apply: the field imputed."),
    ] = None,
    version: Annotated[
        int | None,
        typer.Option("--version", metavar="N", help="Another snapshot of the log than the one in force."),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="T", help="What the age counts from, in UTC; by default that of the snapshot."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on: publish again whenever the log has a new snapshot, until Ctrl-C.")
    ] = False,
    grace: Annotated[
        float,
        typer.Option(
            "--grace",
            metavar="SECONDS",
            help="How long what was in force before is kept at least.",
            rich_help_panel=SETTINGS,
        ),
    ] = 3600.0,
    memory: Memory = "1GB",
    fields: Annotated[
        bool, typer.Option("--fields", help="Name the fields in the result.", rich_help_panel=OUTPUT)
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Publish features by query and document to an online store: built beside the old one, checked, then switched.

    The password of a Redis server is read from CLICKPRISM_REDIS_PASSWORD.
    """
    from clickprism.errors import SettingError
    from clickprism.log.schedule import parse_time
    from clickprism.log.snapshots import read_snapshot
    from clickprism.log.store import LogStore
    from clickprism.serve.publish import publish
    from clickprism.serve.store import typed_address

    output = Output(json, quiet)
    typed_address(to)
    if log is None and (version is not None or follow):
        raise SettingError("--follow" if follow else "--version", version or follow, "be given with a log only")
    if follow and (version is not None or as_of is not None):
        raise SettingError("--follow", True, "be given without --version and --as-of")
    time_of = None if as_of is None else parse_time(as_of)
    store = None if log is None else LogStore.open(log)

    def once() -> None:
        with _progress(output) as progress:
            made = publish(
                to,
                snapshot=None if store is None else read_snapshot(store, version=version),
                features=features,
                imputed=imputed,
                as_of=time_of,
                grace=grace,
                memory=memory,
                progress=progress,
            )
        names = list(made.info.fields) if fields else None
        told = made.plain() | ({} if names is None else {"names": names})
        if not follow:
            output.result(_text(made, names), told)
            if not made.changed:
                output.note("The same is in force already: nothing had to be done")
        elif made.changed:
            typer.echo(dumps(told) if json else f"{_text(made, names)}\n")

    def state() -> object:
        files = [path.stat() for path in (features, imputed) if path is not None]
        changes = [(found.st_mtime_ns, found.st_size, found.st_ino) for found in files]
        return None if store is None else store.table("snapshots").version, changes

    seen = state() if follow else None
    once()
    if follow:
        output.note("Following the log; Ctrl-C ends it")
        try:
            while True:
                time.sleep(_POLL_SECONDS)
                if (now := state()) != seen:
                    once()
                    seen = now
        except KeyboardInterrupt:
            output.note("Ended. What was published last stays in force")


def _text(made: Published, names: list[str] | None) -> str:
    info = made.info
    rows = [
        ["version", info.version],
        ["as of", f"{info.as_of.isoformat(sep=' ', timespec='seconds')} UTC"],
        ["pairs", f"{info.pairs:,}"],
        ["queries", f"{made.queries:,}" if made.changed else "-"],
        ["fields", f"{len(info.fields):,}"],
        ["time", f"{made.seconds:.1f} s"],
    ]
    text = "\n".join(f"{name:<9}{value}" for name, value in rows)
    return text if names is None else f"{text}\n\n{columns(['field'], [[name] for name in names])}"


@contextmanager
def _progress(output: Output) -> Iterator[Callable[[int, str], None]]:
    """How many pairs are written, on a terminal; else only that one has to wait."""
    if output.quiet or not sys.stderr.isatty():
        yield lambda _pairs, doing: output.note(f"{doing.capitalize()} ...") if doing.startswith("waiting") else None
        return
    from rich.console import Console

    with Console(stderr=True).status("reading") as status:
        yield lambda pairs, doing: status.update(f"{doing}: {pairs:,} pairs")
