"""`clickprism log`: load and maintain click logs."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

from clickprism._util.files import check_output
from clickprism.cli.output import Flat, Output
from clickprism.data.click_table import TableSettings
from clickprism.data.tables import is_database
from clickprism.errors import ClickprismError, SettingError
from clickprism.examination.model import chosen_model
from clickprism.log.compact import compact as compact_log
from clickprism.log.engines.base import connect
from clickprism.log.features import schedule
from clickprism.log.features.snapshots import find_snapshots
from clickprism.log.features.windows import end_of_log, features_time, windows
from clickprism.log.forget import forget as forget_users
from clickprism.log.info import log_info
from clickprism.log.ingest import ingest as ingest_files
from clickprism.log.ingest.tables import Watermark, exported_events, guess_columns
from clickprism.log.quarantine import examine_quarantine
from clickprism.log.read import local_copies
from clickprism.log.sessions import build_sessions, has_display_times
from clickprism.log.settings import (
    CompactSettings,
    EngineSettings,
    FeatureSettings,
    IngestSettings,
    RowFilter,
    read_log_settings,
)
from clickprism.log.store import PENDING, SETTINGS_FILE, LogStore
from clickprism.project.settings import FILE as PROJECT_FILE
from clickprism.simulation.raw_settings import RawLogSettings


def ingest(
    *paths: str,
    into: Path | None = None,
    guess: bool = False,
    table: Flat[TableSettings],
    settings: Flat[IngestSettings],
    output: Flat[Output],
) -> None:
    """Add raw events to a click log.

    The files are JSON lines, CSV or Parquet, plain, .gz or .zst, with the fields of clickprism, OpenSearch UBI or
    Metarank, or with columns of your own (--mapping). Broken rows go into quarantine, each event is stored once, and a
    file that was ingested before is skipped. The result says where every row went.

    The settings of the first ingest, such as --schema and --robots.searches-per-day, stay in the log's log.toml.

    ```bash
    clickprism log ingest events.jsonl --into mylog
    clickprism log ingest 'ubi/*.jsonl.gz' --into ubilog --schema ubi
    clickprism log ingest export.csv --into newlog --mapping columns.toml --dry-run
    clickprism log ingest clicks.csv --guess
    clickprism log ingest clicks.csv --map document=sku --map position=rank --into shoplog
    clickprism log ingest sqlite:///shop.db --query "select * from clicks" --into dblog
    ```

    Args:
        paths: Files, folders or quoted patterns, also at a URL such as s3://bucket/events/*.jsonl.gz; with --map or
            --query, one table that fits into memory: CSV or Parquet files, or the URL of a database.
        into: Folder of the log; it is created if it is missing.
        guess: Propose which column of a table holds what, show five rows, and write nothing.
    """
    if not paths:
        raise SettingError("paths", None, "name at least one file or folder")
    if guess:
        output.result(guess_columns(paths[0], table))
        return
    if into is None:
        raise SettingError("into", None, "name the folder of the log")
    with ExitStack() as stack:
        paths = tuple(map(str, stack.enter_context(local_copies(paths, note=output.note))))
        if table or is_database(paths[0]):
            read = None
            if settings.watermark is not None and not settings.dry_run:
                read = Watermark(settings.watermark, table.query, source=paths[0], log=into)
            exported = stack.enter_context(exported_events(paths[0], table, note=output.note, watermark=read))
            if exported is None:
                return
            paths = (exported,)
        progress = stack.enter_context(output.progress("reading"))
        try:
            account = ingest_files(
                paths,
                into,
                settings=settings.of_log(read_log_settings(into / SETTINGS_FILE)),
                dry_run=settings.dry_run,
                max_bad_ratio=settings.max_bad_ratio,
                threads=settings.threads,
                memory=settings.memory,
                progress=progress,
                note=output.note,
            )
        except ClickprismError as error:
            if error.done is not None and error.done.files:
                output.result(error.done)  # what was ingested before the error
            raise
    output.result(account)
    if settings.dry_run:
        output.note("This was a dry run: nothing was written")
    elif account.files:
        if account.quarantined:
            output.next("log", "quarantine", into)
        if account.accepted:
            output.next("diagnose", into)


def sessions(
    log: Path,
    /,
    *,
    days: str | None = None,
    out: Path | None = None,
    engine: Flat[EngineSettings],
    output: Flat[Output],
) -> None:
    """Build the ranked lists with clicks of a log.

    Only days whose events or settings have changed are rebuilt. A row of the result is a day. Commands that need the
    lists build them by themselves; this command shows what they contain and writes them to a file.

    ```bash
    clickprism log sessions mylog
    clickprism log sessions mylog --days 2024-01-01..2024-01-07 --out week.parquet
    ```

    Args:
        log: Folder of an ingested log.
        days: Only these days (UTC), such as 2024-01-01..2024-01-07, or one day.
        out: Parquet file for the rows: one for each document shown, with its clicks. Rows of robots are excluded.
    """
    if out is not None:
        check_output(out, suffix=".parquet")
    chosen, store = schedule.days_of(days), LogStore.open(log, note=output.note)
    with store.write(engine=engine.engine, memory=engine.memory, exclusive=False) as writer:
        output.result(build_sessions(store, writer.engine, chosen, out=out))
    if out is not None:
        store.record_output(out, f"clickprism log sessions {log} --out {out}")
    if has_display_times(store.table("events").files()):
        output.next("bias", "examination", log)
    else:
        output.next("log", "features", log)


def features(
    log: Path,
    /,
    *,
    as_of: str | None = None,
    out: Path | None = None,
    settings: Flat[FeatureSettings],
    engine: Flat[EngineSettings],
    output: Flat[Output],
) -> None:
    """Compute click features over a day, a week and a month.

    The features of a query-document pair are its impressions, clicks, display and dwell times by position, over the
    day, the week and the month before a time. They are stored in the log; the latest ones are the current ones.

    ```bash
    clickprism log features mylog
    clickprism log features mylog --as-of 2024-01-07T15:00 --min-users 0 --out features.parquet
    ```

    Args:
        log: Folder of an ingested log.
        as_of: Time at which the windows end (UTC), such as 2026-03-04T15:00, or now. By default the end of the log.
        out: Parquet file for the features, one column each.
    """
    if out is not None:
        check_output(out, suffix=".parquet")
    store = LogStore.open(log, note=output.note)
    time = features_time(store, as_of)
    with store.write(engine=engine.engine, memory=engine.memory) as writer:
        model = chosen_model(store.folder / "models", settings.examination)
        own = settings.windows(store.settings.windows)
        before = next(iter(find_snapshots(store)), None)
        computed = windows(store, writer.engine, time, examiner=model, settings=own)
    report, fields = computed.report(), computed.snapshot.fields
    output.result(report)
    if computed.changed and before is not None and before.fields != fields:
        why = "an examination model was added" if report.examination else "the examination model is missing now"
        change = f"{len(fields)} features instead of {len(before.fields)}"
        print(f"warning: {change}: {why}. Read features by name", file=sys.stderr)
    if advice := report.advice(end_of_log(store)):
        output.note(advice)
    if out is not None:
        computed.snapshot.export(out)
        store.record_output(out, f"clickprism log features {log} --out {out}")


def quarantine(
    log: Path, /, *, rows: Flat[RowFilter], out: Path | None = None, clear: bool = False, output: Flat[Output]
) -> None:
    """Show the rows that ingest rejected, with the reason.

    To repair rows, write them to a file, correct them and ingest that file.

    ```bash
    clickprism log quarantine mylog
    clickprism log quarantine mylog --reason not-json --out broken.jsonl --clear
    ```

    Args:
        log: Folder of an ingested log.
        out: File for the content of the rows, to be repaired and ingested.
        clear: Take the rows out of quarantine; with --out only those that were written.
    """
    store = LogStore.open(log, note=output.note)
    with store.write():
        report = examine_quarantine(store, rows, out=out, clear_rows=clear)
    output.result(report)
    if report.cut:
        output.note(f"{report.cut:,} rows were not written: they are too long, or part of an unreadable file")
    if out is not None:
        output.note(f"{report.written:,} rows written to {out}. Repair them")
        output.next("log", "ingest", out, "--into", log)


def compact(log: Path, /, *, settings: Flat[CompactSettings], output: Flat[Output]) -> None:
    """Merge the small files of a log, and delete old data.

    The rows of merged files stay the same, and nothing is rebuilt. `log ingest` merges them too when a day has more
    than 32 small ones. Replaced files stay on disk for windows.keep_hours. With --keep-days, older events,
    sessions, click features and rows in quarantine are deleted and counted.

    ```bash
    clickprism log compact mylog
    clickprism log compact mylog --files 1
    clickprism log compact mylog --keep-days 400
    ```

    Args:
        log: Folder of an ingested log.
    """
    store = LogStore.open(log, note=output.note)
    with store.write():
        merged = compact_log(store, settings)
    output.result(merged)
    if not merged.days and not settings.keep_days:
        output.note(f"No day has more than {settings.files:,} files: there is nothing to merge")


def forget(
    log: Path,
    /,
    *,
    user: tuple[str, ...] = (),
    dry_run: bool = False,
    engine: Flat[EngineSettings],
    output: Flat[Output],
) -> None:
    """Erase users from a log.

    All their rows are erased, also from quarantine and from batches that a service has not yet ingested, and the
    sessions of the same days are rebuilt. Click features and examination models that used their rows are deleted. Files
    that were exported from the log are named, with the command that rebuilds each. The input files are yours to delete.

    ```bash
    clickprism log forget mylog --user u17 --dry-run
    clickprism log forget mylog --user u17 --user u18
    ```

    Args:
        log: Folder of an ingested log.
        user: Id of a user, exactly as in the log; can be repeated. Without it, an interrupted erasure is finished.
        dry_run: Count what would be erased, but erase nothing.
    """
    store = LogStore.open(log, note=output.note)
    with store.write(engine=engine.engine, memory=engine.memory, finish_erasure=False) as writer:
        interrupted = (store.folder / PENDING).exists()
        if interrupted:
            output.note("An earlier erasure was interrupted: its users are erased too")
        erased = forget_users(store, writer.engine, user, dry_run=dry_run)
    output.result(erased)
    if not (erased.rows or erased.quarantined or erased.waiting or interrupted):
        output.note("The log has no rows of these users. Ids must be written exactly as in the log")
    elif not dry_run:
        output.note("The input files may still contain these users; clickprism does not change them")
        if (log.resolve().parent / PROJECT_FILE).exists():
            output.next("run", log.resolve().parent)
            return
        if erased.models:
            output.next("bias", "examination", log)
        if erased.snapshots:
            output.next("log", "features", log)


def simulate(*, out: Path, settings: Flat[RawLogSettings], output: Flat[Output]) -> None:
    """Write the raw log of a simulated search engine.

    People and robots search for some days; their rows arrive late, twice or broken, as on a real site. The folder gets
    events/ (the raw log) and truth/ (what was observed and how relevant it is, and what an ingest must count).

    ```bash
    clickprism log simulate --out raw
    clickprism log simulate --searches 1000 --days 7 --schema ubi --robots 0 --user.name ubm --seed 3 --out rawubi
    ```

    Args:
        out: Folder for the log, new or empty.
    """
    from clickprism.simulation.raw_log import write_raw_log

    with output.progress("days") as progress:
        log = write_raw_log(out, settings, progress=progress)
    output.result(log)
    schema = ["--schema", "ubi", "--ordinal-base", settings.ordinal_base] if settings.schema == "ubi" else []
    output.next("log", "ingest", out / "events", "--into", "mylog", *schema)


def info(log: Path, /, *, engine: Flat[EngineSettings], output: Flat[Output]) -> None:
    """Describe what a log contains.

    The result is the number of searches, events and users, the days and input files, the rows in quarantine, the size
    on disk, and the clicks by position.

    ```bash
    clickprism log info mylog
    ```

    Args:
        log: Folder of an ingested log.
    """
    store = LogStore.open(log, note=output.note)
    with connect(engine.engine, memory=engine.memory) as running:
        result = log_info(store, running)
    output.result(result)
    if result.session_days < result.days:
        output.next("log", "sessions", log)
