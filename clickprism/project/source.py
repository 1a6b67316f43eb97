"""The source of a project: its files, the log that they are added to, and that log in memory."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from clickprism._util.files import atomic_file, create_folder, sha256
from clickprism.errors import ClickprismError, DataError, UnsupportedError
from clickprism.project.settings import FETCHED, FILE, ProjectSettings, expand, redact

if TYPE_CHECKING:
    from clickprism.data.logged import Logged
    from clickprism.log.store import LogStore
    from clickprism.relevance.estimate import LogEstimates

Note = Callable[[str], None]
LOG: Final = "log"
PARTIAL: Final = (".tmp", ".part", ".crc")


@contextmanager
def safe_errors(settings: ProjectSettings) -> Iterator[None]:
    """Remove the values of secrets from the error of the block."""
    try:
        yield
    except ClickprismError as error:
        error.args = tuple(redact(each, settings) if isinstance(each, str) else each for each in error.args)
        raise
    except OSError as error:
        raise DataError(redact(str(error), settings)) from None


def source_files(folder: Path, settings: ProjectSettings, note: Note) -> dict[str, list[int]]:
    """Return the files of the source with size and time of change; remote files that changed are fetched first."""
    if settings.source.remote:
        fetch(expand(settings.source.path), folder / FETCHED, note)
    place = Path(settings.path(folder))
    found = [place] if place.is_file() else [Path(each) for each in glob.glob(str(place), recursive=True)]
    files = sorted(each for one in found for each in (one.rglob("*") if one.is_dir() else [one]) if each.is_file())
    files = [each for each in files if not each.name.startswith((".", "_")) and not each.name.endswith(PARTIAL)]
    if not files:
        remedy = f"Check {'source.path in clickprism.toml' if (folder / FILE).exists() else '--source'}"
        raise DataError("there is no such file, or the folder is empty", file=place, remedy=remedy)
    return {str(each): [(about := each.stat()).st_size, about.st_mtime_ns] for each in files}


def fetch(url: str, into: Path, note: Note) -> None:
    """Copy the files of a remote folder that are new or changed; credentials come from the environment."""
    from pyarrow import fs

    system, root = fs.FileSystem.from_uri(url)
    create_folder(into)
    for about in system.get_file_info(fs.FileSelector(root, recursive=True)):
        if about.type != fs.FileType.File:
            continue
        name = about.path.removeprefix(root).lstrip("/").replace("/", "__")
        stamp = f"{about.size}-{about.mtime_ns}"
        mark, target = into / f".{name}.stamp", into / name
        if target.exists() and mark.exists() and mark.read_text() == stamp:
            continue
        note(f"fetching {name}")
        with atomic_file(target) as draft, system.open_input_stream(about.path) as source, draft.open("wb") as out:
            while block := source.read(1 << 22):
                out.write(block)
        with atomic_file(mark) as draft:
            draft.write_text(stamp)


def open_log(folder: Path, note: Note | None = None) -> LogStore:
    """Open the log of the project."""
    from clickprism.log.store import LogStore

    return LogStore.open(folder / LOG, note=note)


def ingest_files(folder: Path, settings: ProjectSettings, files: Sequence[str], note: Note) -> dict[str, int]:
    """Add files to the log of the project; return how many rows its files had, stored, duplicate and broken."""
    from clickprism.log.ingest import ingest
    from clickprism.log.ingest.tables import exported_events
    from clickprism.log.settings import IngestSettings, read_log_settings

    into, source = folder / LOG, settings.source
    own = IngestSettings(
        memory=settings.memory,
        schema=None if source.schema == "auto" or source.table else source.schema,
        ordinal_base=None if source.ordinal_base == -1 or source.table else source.ordinal_base,
        mapping=folder / source.mapping if source.mapping else None,
    )

    def add(paths: Sequence[str]) -> None:
        if paths:
            log = own.of_log(read_log_settings(into / "log.toml"))
            ingest(paths, into, settings=log, memory=settings.memory, max_bad_ratio=0.05, note=note)

    if not source.table:
        add(files)
    for file in files if source.table else ():
        note(f"adding {Path(file).name}")
        with exported_events(file, settings.table, note=note) as events:
            add([] if events is None else [events])
    table = open_log(folder).table("files").read(["rows_in", "stored", "duplicate", "quarantined"])
    rows, stored, duplicate, broken = (int(sum(column.to_pylist())) for column in table.columns)
    return {"files": table.num_rows, "rows": rows, "stored": stored, "duplicate": duplicate, "quarantined": broken}


def log_state(folder: Path) -> list[Any]:
    """Return a value that changes whenever rows are added to or erased from the log of the project."""
    if not (folder / LOG / "log.toml").exists():
        return []
    return [open_log(folder).table("events").version, sha256(folder / LOG / "log.toml")]


def log_days(folder: Path) -> list[date]:
    """Return the days of the log of the project."""
    return open_log(folder).table("sessions").days()


def is_sessions(path: str) -> bool:
    """Return whether a file is a session file: one row for each search, with documents and clicks."""
    from clickprism.log.open_log import kind_of

    return kind_of(path) == "sessions"


def read_logged(folder: Path, settings: ProjectSettings, note: Note) -> Logged:
    """Read the log into memory; days of an ingested log that are before `since` are excluded."""
    from clickprism.data.click_table import NO_TABLE
    from clickprism.log.open_log import ReadSettings, open_source, read_log

    since = settings.training.since
    if settings.source.read == "memory":
        if since:
            raise UnsupportedError("source.read is memory, so days are not known", remedy="Omit since, or use sql")
        path = settings.path(folder)
        with safe_errors(settings):
            table = NO_TABLE if is_sessions(path) else settings.table
            reading = ReadSettings(on_error="quarantine")
            return open_source(path, table, outcome=settings.training.outcome, settings=reading, note=note)
    logged = read_log(folder / LOG, note=note)
    if not since or logged.days is None:
        return logged
    kept = logged.take(logged.days >= (date.fromisoformat(since) - log_days(folder)[0]).days)
    if not len(kept):
        raise UnsupportedError(f"has no searches since {since}", file=folder / LOG, remedy="Choose an earlier day")
    return kept


def fit_model(
    folder: Path, settings: ProjectSettings, logged: Callable[[], Logged], out: Path, note: Note
) -> LogEstimates:
    """Fit the model of the log, and save it with the estimates of all pairs to `out`."""
    from clickprism.relevance.estimate import estimate_relevance, estimate_table
    from clickprism.relevance.estimators import EstimateSettings
    from clickprism.relevance.pair_files import read_query_texts

    estimates, model, training = out / "estimates.parquet", out / "log_model", settings.training
    if settings.source.read == "memory":
        own, path = EstimateSettings(seed=training.seed), settings.path(folder)
        texts = read_query_texts(Path(path)) if is_sessions(path) else None
        return estimate_table(logged(), estimates, own, outcome=training.outcome, folder=model, texts=texts)
    days = [day for day in log_days(folder) if day.isoformat() >= training.since] if training.since else None
    own = EstimateSettings(seed=training.seed, min_users=settings.privacy.min_users)
    store = open_log(folder, note)
    with store.write(engine=settings.engine, memory=settings.memory) as writer:
        return estimate_relevance(store, writer.engine, estimates, own, days=days, model=model)
