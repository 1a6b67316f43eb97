"""`clickprism ingest`: raw events into a click log, with an account of every row."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clickprism.cli_old.options import SETTINGS, Json, Memory, Quiet
from clickprism.cli_old.output import Output, columns, command_line
from clickprism.errors import ClickprismError

if TYPE_CHECKING:
    from clickprism.log.account import Account
    from clickprism.log.ingest import Progress
    from clickprism.log.settings import LogSettings

EPILOG = (
    "Examples:\n\nclickprism ingest events/ --into logs/shop\n\n"
    "clickprism ingest 'ubi/*.jsonl.gz' --into logs/shop --schema ubi --ordinal-base 0\n\n"
    "clickprism ingest export.csv --into logs/shop --mapping columns.toml --dry-run"
)


def command(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Files, folders or quoted patterns: JSON lines, CSV or Parquet, plain, .gz or .zst.",
        ),
    ],
    *,
    into: Annotated[Path, typer.Option("--into", metavar="DIR", help="The log; it is made if missing.")],
    schema: Annotated[
        Literal["auto", "clickprism", "ubi", "metarank", "yandex", "mapping"] | None,
        typer.Option(
            "--schema",
            metavar="NAME",
            help="Whose fields the rows have: auto, clickprism, ubi, metarank, yandex or mapping.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    ordinal_base: Annotated[
        int | None,
        typer.Option(
            "--ordinal-base",
            metavar="0|1",
            help="What the first position of a list is called.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    mapping: Annotated[
        Path | None,
        typer.Option(
            "--mapping", metavar="FILE", help="A TOML file that names your columns.", rich_help_panel=SETTINGS
        ),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of a new log, such as robots.searches_per_day=500; may be repeated.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    max_bad_ratio: Annotated[
        float,
        typer.Option(
            "--max-bad-ratio",
            metavar="SHARE",
            help="Fail at a file that brings the share of broken rows above this, and leave it out; 1: never.",
        ),
    ] = 0.01,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do everything but write.")] = False,
    threads: Annotated[int, typer.Option("--threads", min=1, metavar="N", help="To use.")] = 2,
    memory: Memory = "2GB",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Read raw events into a click log: broken rows into quarantine, each event once, every row accounted for."""
    from clickprism.log.ingest import ingest

    output = Output(json, quiet)
    given = _settings(into, sets or [], schema=schema, ordinal_base=ordinal_base, mapping=mapping)
    try:
        with _bar(output) as progress:
            account = ingest(
                paths,
                into,
                settings=given,
                dry_run=dry_run,
                max_bad_ratio=max_bad_ratio,
                progress=progress,
                note=output.note,
                threads=threads,
                memory=memory,
            )
    except ClickprismError as error:
        if error.done is not None:
            output.result(_text(error.done), error.done.plain())
        raise
    output.result(_text(account), account.plain())
    if dry_run:
        output.note("Nothing was written: a dry run")
    elif account.files:
        if account.quarantined:
            output.note(f"Broken rows are kept: {command_line('quarantine', into)}")
        output.note(f"Next: {command_line('sessions', into)}")


def _settings(
    into: Path, sets: list[str], *, schema: str | None, ordinal_base: int | None, mapping: Path | None
) -> LogSettings:
    """What the options say, on top of what the log has."""
    from clickprism.log.mapping import read_mapping
    from clickprism.log.settings import LogSettings, read_log_settings
    from clickprism.log.store import SETTINGS_FILE
    from clickprism.settings import override, plain

    values: dict[str, Any] = override(read_log_settings(into / SETTINGS_FILE).values, sets)
    options = {
        "schema": schema,
        "ordinal_base": ordinal_base,
        "mapping": None if mapping is None else plain(read_mapping(mapping)),
    }
    source = {name: value for name, value in options.items() if value is not None}
    if source:
        values["source"] = {**values.get("source", {}), **source}
    return LogSettings(values)


def _text(account: Account) -> str:
    from clickprism.log.readers import REASONS

    rows = [["in", account.rows_in, ""], ["accepted", account.accepted, ""], ["duplicate", account.duplicate, ""]]
    rows += [["filtered", sum(account.filtered.values()), ""]]
    rows += [["", count, rule] for rule, count in account.filtered.items()]
    rows += [["quarantined", sum(account.quarantined.values()), ""]]
    rows += [["", count, f"{code}: {REASONS.get(code, '')}"] for code, count in account.quarantined.items()]
    table = columns(["rows", "", ""], [[str(name), f"{count:,}", str(why)] for name, count, why in rows])
    days = f"{account.days[0]} to {account.days[-1]}" if account.days else "none"
    facts = [
        ["files", f"{account.files:,} new, {account.known:,} known before"],
        ["days", f"{len(account.days):,} ({days})" if account.days else "none"],
        ["time", f"{account.seconds:.1f} s, {account.rows_per_second:,.0f} rows/s"],
    ]
    return f"{table}\n\n" + "\n".join(f"{name:<7}{value}" for name, value in facts)


@contextmanager
def _bar(output: Output) -> Iterator[Callable[[Progress], None] | None]:
    """A bar over the bytes of the input with rows/s, on a terminal only."""
    if output.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    shown = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    rate = TextColumn("{task.fields[rate]}")
    with Bar(*shown, rate, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None, rate="")

        def show(at: Progress) -> None:
            seconds = bar.tasks[task].elapsed or 0.0
            rate = f"{at.rows / seconds:,.0f} rows/s" if seconds else ""
            bar.update(task, completed=at.bytes_read, total=at.bytes_all, description=at.doing, rate=rate)

        yield show
