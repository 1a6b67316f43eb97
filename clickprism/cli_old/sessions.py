"""`clickprism sessions`: bring the ranked lists with clicks of a log up to date with its events."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clickprism.cli_old.options import OUTPUT, EngineName, Json, Log, Memory, Quiet
from clickprism.cli_old.output import Output, columns, command_line

if TYPE_CHECKING:
    from clickprism.log.sessions import SessionReport

EPILOG = (
    "Examples:\n\nclickprism sessions logs/shop\n\n"
    "clickprism sessions logs/shop --days 2026-01-01..2026-01-07 --out week.parquet\n\n"
    "clickprism sessions logs/shop --engine 'local[*]'"
)


def command(
    log: Log,
    *,
    days: Annotated[str | None, typer.Option("--days", metavar="A..B", help="Of these days only.")] = None,
    engine: EngineName = "duckdb",
    memory: Memory = "2GB",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE.parquet",
            help="Write the rows that count to a file: one for each document shown, with clicks and features.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Group impressions and clicks into ranked lists, for the days whose events or settings have changed."""
    from clickprism.errors import SettingError
    from clickprism.log.repeats import repeated
    from clickprism.log.sessions import export_sessions, has_display_times, session_report, update_sessions
    from clickprism.log.store import LogStore

    if out is not None and out.suffix != ".parquet":
        raise SettingError("--out", str(out), "end in .parquet")
    output, span = Output(json, quiet), day_span(days)
    store = LogStore.open(log, note=output.note)
    with store.write(engine=engine, memory=memory, exclusive=False) as writer:
        running = writer.engine
        rebuilt = update_sessions(store, running, None if span is None else days_between(*span))
        reports, again = session_report(store, running, rebuilt), repeated(store, running, rebuilt)
    told: dict[str, Any] = {
        "rebuilt": [asdict(each) | {"day": each.day.isoformat(), "repeated": again[each.day]} for each in reports]
    }
    if out is not None:
        told["rows_written"] = export_sessions(store, out, None if span is None else days_between(*span))
    output.result(_text(reports, again), told | {"days": len(store.table("sessions").days())})
    if out is not None:
        output.note(f"Written to {out}: {told['rows_written']:,} rows")
    if has_display_times(store.table("events").files()):
        output.note(f"Next: {command_line('examine', log)}")
    else:
        windows = command_line("windows", log, "--examination", "none")
        output.note(f"No display times, so examination cannot be learned. Next: {windows}")


def _text(reports: list[SessionReport], again: Counter[date]) -> str:
    if not reports:
        return "All days were up to date"
    header = ["day", "searches", "documents shown", "clicked", "left out by rules", "clicks on nothing shown"]
    header += ["shown again"] if again.total() else []
    rows = []
    for each in reports:
        counts = [each.searches, each.rows, each.clicked, each.filtered, each.unmatched]
        counts += [again[each.day]] if again.total() else []
        rows.append([each.day.isoformat(), *(f"{count:,}" for count in counts)])
    text = columns(header, rows)
    if again.total():
        text += "\n\nShown again: a document that its search had shown before is one row, at its first position"
    return text


def day_span(text: str | None) -> tuple[date, date] | None:
    """The first and the last day of A..B, or of one day."""
    from clickprism.errors import SettingError

    if text is None:
        return None
    first, _, last = text.partition("..")
    try:
        span = date.fromisoformat(first.strip()), date.fromisoformat((last or first).strip())
    except ValueError:
        raise SettingError("--days", text, "be two days such as 2026-01-01..2026-01-28, or one") from None
    if span[0] > span[1]:
        raise SettingError("--days", text, "have the earlier day first")
    return span


def days_between(first: date, last: date) -> list[date]:
    """All days from the first to the last."""
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]
