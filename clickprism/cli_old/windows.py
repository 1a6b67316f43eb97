"""`clickprism windows`: the click features of each (query, document) as of a time, kept current with `--follow`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clickprism.cli_old.options import OUTPUT, SETTINGS, EngineName, Examination, Json, Log, Memory, Quiet
from clickprism.cli_old.output import Output, columns, command_line

if TYPE_CHECKING:
    from clickprism.log.partials import Examiner
    from clickprism.log.snapshots import Snapshot
    from clickprism.log.store import LogStore
    from clickprism.log.windows import Windows

EPILOG = (
    "Examples:\n\nclickprism windows logs/shop\n\n"
    "clickprism windows logs/shop --as-of 2026-03-04T15:00 --out features.parquet\n\n"
    "clickprism windows logs/shop --follow\n\n"
    "clickprism windows logs/shop --engine 'local[*]'"
)


def command(
    log: Log,
    *,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="T", help="The time in UTC, or now; by default the end of the log, or now."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on: a snapshot each hour and when the log changes, until Ctrl-C.")
    ] = False,
    k: Annotated[
        int | None,
        typer.Option(
            "--k",
            metavar="N",
            help="Leave out pairs with fewer users in a window (5); 0 leaves nothing out.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    examination: Examination = None,
    engine: EngineName = "duckdb",
    memory: Memory = "1GB",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE.parquet", help="Write it there too, a column a field.", rich_help_panel=OUTPUT
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Sum up clicks, display and dwell times of the last day, week and month for each (query, document)."""
    from clickprism.errors import SettingError
    from clickprism.log.follow import follow as keep_following
    from clickprism.log.follow import now

    if follow and as_of is not None:
        raise SettingError("--as-of", as_of, "not be given with --follow, which takes the time as it goes")
    if out is not None:
        check_out(out)
    from clickprism.log.snapshots import find_snapshots
    from clickprism.log.store import LogStore
    from clickprism.log.windows import windows

    output = Output(json, quiet)
    store = LogStore.open(log, note=output.note)
    asked = None if follow else _time(as_of, store)

    def make(time: datetime) -> None:
        settings = store.settings.windows if k is None else replace(store.settings.windows, k=k)
        with store.write(engine=engine, memory=memory) as writer:
            running = writer.engine
            examiner = examiner_of(store, examination)
            before = next(iter(find_snapshots(store)), None)
            made = windows(store, running, time, examiner=examiner, settings=settings)
        _say(made, output, log=log, follow=follow)
        _hint(made, before, output, store=store, log=log)
        if out is not None:
            made.snapshot.export(out)
            output.note(f"Written: {out}")

    if asked is not None:
        make(asked)
        return
    output.note("Following the log; Ctrl-C ends it")
    try:
        keep_following(make, state=_state(store), clock=now)
    except KeyboardInterrupt:
        output.note("Ended. The last snapshot stays in force")


def check_out(out: Path) -> None:
    """An error, before any work, if the file cannot be written."""
    from clickprism.errors import DataError, SettingError

    if out.suffix != ".parquet":
        raise SettingError("--out", str(out), "end in .parquet")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        reason = "it is a folder" if out.is_dir() else None if os.access(out.parent, os.W_OK) else "Permission denied"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason is not None:
        raise DataError(f"cannot be written ({reason})", file=out, remedy="Choose another --out")


def _time(text: str | None, store: LogStore) -> datetime:
    """The time that is asked for; else the end of the log, or now if the log goes on."""
    from clickprism.errors import DataError
    from clickprism.log.follow import now
    from clickprism.log.schedule import parse_time
    from clickprism.log.windows import end_of_log

    if text is not None:
        return now() if text == "now" else parse_time(text)
    end = end_of_log(store)
    if end is None:
        raise DataError(
            "has no events", file=store.folder, remedy="Bring some in by: clickprism ingest PATH --into DIR"
        )
    return min(end, now())


def _state(store: LogStore) -> Callable[[], object]:
    """What a snapshot depends on besides the time."""
    from clickprism.log.store import SETTINGS_FILE

    return lambda: (
        store.table("events").version,
        (store.folder / SETTINGS_FILE).read_bytes(),
        sorted(path.name for path in (store.folder / "models").glob("*.json")),
    )


def examiner_of(store: LogStore, name: str | None) -> Examiner | None:
    """The examination model: the one that is asked for, or the one in force."""
    if name == "none":
        return None
    from clickprism.observation.examination import load_model, newest_model

    return newest_model(store.folder / "models") if name is None else load_model(Path(name))


def _say(made: Windows, output: Output, *, log: Path, follow: bool) -> None:
    from clickprism.log.schedule import schedule

    snapshot = made.snapshot
    rows = []
    for span in schedule(snapshot.as_of, week_start=snapshot.settings["week_start"]):
        pairs, suppressed = snapshot.pairs[span.name], snapshot.suppressed[span.name]
        rows.append([span.name, _stamp(span.start), _stamp(span.end), f"{pairs:,}", f"{suppressed:,}"])
    count = snapshot.rows()
    data: dict[str, Any] = {
        "as_of": snapshot.as_of.isoformat(),
        "version": snapshot.version,
        "changed": made.changed,
        "rows": count,
        "fields": len(snapshot.fields),
        "k": snapshot.settings["k"],
        "pairs": dict(snapshot.pairs),
        "suppressed": dict(snapshot.suppressed),
        "examination": snapshot.examination,
        "sessions_rebuilt": [day.isoformat() for day in made.sessions],
        "partials_rebuilt": [day.isoformat() for day in made.partials],
        "windows_rebuilt": list(made.dictionaries),
    }
    if follow and output.json:
        import json

        typer.echo(json.dumps(data))
    else:
        few = f"under {snapshot.settings['k']} users" if snapshot.settings["k"] else "left out"
        header = ["window", "from", "to", "pairs", few]
        first = f"As of {_stamp(snapshot.as_of)} UTC: {count:,} pairs, {len(snapshot.fields)} fields, "
        first += f"version {snapshot.version}" + ("" if made.changed else " (as it was)")
        output.result(f"{first}\n\n{columns(header, rows)}", data)
    if not count and any(snapshot.suppressed.values()):
        output.note(
            f"Every pair has fewer than {snapshot.settings['k']} users in every window, so all are left out. If the "
            f"log has no user ids, or few users: {command_line('windows', log, '--k', 0)}"
        )
    if snapshot.examination is None and not follow:
        output.note(f"Without examination: there is no model, or none was asked for ({command_line('examine', log)})")


def _hint(made: Windows, before: Snapshot | None, output: Output, *, store: LogStore, log: Path) -> None:
    """What a reader would else wonder at: x is of another width, the log has ended."""
    from clickprism.log.windows import end_of_log

    snapshot, end = made.snapshot, end_of_log(store)
    if made.changed and before is not None and before.fields != snapshot.fields:
        why = "an examination model has come" if snapshot.examination else "there is no examination model any more"
        width = f"x has {len(snapshot.fields)} fields, and had {len(before.fields)} in the snapshot before"
        typer.echo(f"warning: {width}: {why}. Readers must go by the names of the fields", err=True)
    shown = any(snapshot.pairs.values()) or any(snapshot.suppressed.values())
    if not shown and end is not None and end < snapshot.as_of:
        then = f"the log ends {_stamp(end)}. As of then: {command_line('windows', log)}"
        output.note(f"Nothing was shown in these windows: {then}")


def _stamp(time: datetime) -> str:
    return time.isoformat(sep=" ", timespec="minutes")
