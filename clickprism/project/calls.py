"""Every call of a project to other parts of clickprism, so that a renamed function changes one line here."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from clickprism._util.files import atomic_file, create_folder, sha256
from clickprism.errors import ClickprismError, DataError, UnsupportedError
from clickprism.project.settings import ProjectSettings, expand, period, redact
from clickprism.types import Float64

if TYPE_CHECKING:
    from clickprism.auto.run import AutoResult
    from clickprism.data.logged import Logged
    from clickprism.log_model.model import LogModel
    from clickprism.serve.bundle.deployment import Deployment

Note = Callable[[str], None]
LOG, FETCHED = "log", "state/fetched"
REMOTE: Final = ("s3://", "gs://", "file://")
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


def table_settings(settings: ProjectSettings) -> Any:
    """Return which column of a table holds what."""
    from clickprism.data.click_table import TableSettings

    own = settings.columns
    return TableSettings(
        map=own.map,
        query=expand(settings.source.sql) or None,
        features=own.features,
        ignore=own.ignore,
        categorical=own.categorical,
    )


def is_database(path: str) -> bool:
    """Return whether a source is read by a query."""
    from clickprism.data.frames import is_database

    return is_database(path) and not path.startswith(REMOTE)


def source_path(folder: Path, settings: ProjectSettings) -> str:
    """Return the source as other parts of clickprism take it: a path or the URL of a database, secrets included."""
    path = expand(settings.source.path)
    if "://" in path and not path.startswith(REMOTE):
        return path
    return str(folder / FETCHED) if path.startswith(REMOTE) else str(folder / path)


def source_files(folder: Path, settings: ProjectSettings, note: Note) -> dict[str, list[int]]:
    """Return the files of the source with size and time of change; remote files that changed are fetched first."""
    path = expand(settings.source.path)
    if path.startswith(REMOTE):
        fetch(path, folder / FETCHED, note)
    place = Path(source_path(folder, settings))
    found = [place] if place.is_file() else [Path(each) for each in glob.glob(str(place), recursive=True)]
    files = sorted(each for one in found for each in (one.rglob("*") if one.is_dir() else [one]) if each.is_file())
    files = [each for each in files if not each.name.startswith((".", "_")) and not each.name.endswith(PARTIAL)]
    if not files:
        remedy = "Check source.path in clickprism.toml"
        raise DataError("there is no such file, or the folder is empty", file=settings.source.path, remedy=remedy)
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


def ingest_files(folder: Path, settings: ProjectSettings, files: Sequence[str], note: Note) -> dict[str, int]:
    """Add files to the log of the project, and return what the log holds then."""
    from clickprism.log.ingest import ingest
    from clickprism.log.ingest.tables import exported_events
    from clickprism.log.settings import IngestSettings, read_log_settings

    into, source = folder / LOG, settings.source
    own = IngestSettings(
        memory=settings.memory,
        schema=None if source.schema == "auto" or source.table else source.schema,
        ordinal_base=None if source.ordinal_base == -1 or source.table else source.ordinal_base,
    )

    def add(paths: Sequence[str]) -> None:
        if not paths:
            return
        log = own.of_log(read_log_settings(into / "log.toml"))
        ingest(paths, into, settings=log, memory=settings.memory, max_bad_ratio=0.05, note=note)

    if not source.table:
        add(files)
    for file in files if source.table else ():
        note(f"adding {Path(file).name}")
        with exported_events(file, table_settings(settings), note=note) as events:
            add([] if events is None else [events])
    return log_counts(folder)


def log_counts(folder: Path) -> dict[str, int]:
    """Return how many rows the input files of the log had, and how many were stored, duplicates or broken."""
    from clickprism.log.store import LogStore

    names = {"rows": "rows_in", "stored": "stored", "duplicate": "duplicate", "quarantined": "quarantined"}
    files = LogStore.open(folder / LOG).table("files").read([*names.values()])
    counts = {name: int(sum(files[column].to_pylist())) for name, column in names.items()}
    return {"files": files.num_rows, **counts}


def log_state(folder: Path) -> list[Any]:
    """Return what changes whenever rows are added to or erased from the log of the project."""
    from clickprism.log.store import LogStore

    if not (folder / LOG / "log.toml").exists():
        return []
    store = LogStore.open(folder / LOG)
    return [store.table("events").version, sha256(folder / LOG / "log.toml")]


def event_files(folder: Path) -> dict[str, int]:
    """Return the files of the log with their number of rows; a file is replaced if users are erased from it."""
    from clickprism.log.store import LogStore

    days = LogStore.open(folder / LOG).table("events").file_rows()
    return {Path(name).name: rows for files in days.values() for name, rows in files.items()}


def update_features(folder: Path, settings: ProjectSettings, note: Note) -> dict[str, Any]:
    """Bring sessions and click features up to date; only days that changed are read."""
    from clickprism.examination.model import chosen_model
    from clickprism.log.features.windows import features_time, windows
    from clickprism.log.settings import FeatureSettings
    from clickprism.log.store import LogStore

    store = LogStore.open(folder / LOG, note=note)
    with store.write(engine=settings.engine, memory=settings.memory) as writer:
        own = FeatureSettings(min_users=settings.privacy.min_users).windows(store.settings.windows)
        model = chosen_model(store.folder / "models", None)
        report = windows(store, writer.engine, features_time(store, None), examiner=model, settings=own).report()
    return {
        "as_of": report.as_of.isoformat(),
        "pairs": report.rows,
        "version": report.version,
        "days_read": len(report.sessions_rebuilt),
    }


def log_days(folder: Path) -> list[date]:
    """Return the days of the log of the project."""
    from clickprism.log.store import LogStore

    return LogStore.open(folder / LOG).table("sessions").days()


def read_logged(folder: Path, settings: ProjectSettings, note: Note) -> Logged:
    """Read the log into memory; days of an ingested log that are before `since` are excluded."""
    from clickprism.log.open_log import open_source, read_log

    since = settings.training.since
    if settings.source.read == "memory":
        path = source_path(folder, settings)
        with safe_errors(settings):
            outcome = settings.training.outcome
            logged = (
                open_source(path, table_settings(settings), outcome=outcome, note=note)
                if not is_sessions(path)
                else None
            )
            logged = read_log(path) if logged is None else logged
        if since:
            raise UnsupportedError("source.read is memory, so days are not known", remedy="Omit since, or use sql")
        return logged
    logged = read_log(folder / LOG, note=note)
    if not since or logged.days is None:
        return logged
    first = (date.fromisoformat(since) - log_days(folder)[0]).days
    kept = logged.take(logged.days >= first)
    if not len(kept):
        raise UnsupportedError(f"has no searches since {since}", file=folder / LOG, remedy="Choose an earlier day")
    return kept


def is_sessions(path: str) -> bool:
    """Return whether a file is a session file: one row for each search, with documents and clicks."""
    from clickprism.log.open_log import is_click_table, is_events

    place = Path(path)
    return place.is_file() and not is_events(place) and not is_database(path) and not is_click_table(path)


def fit_model(folder: Path, settings: ProjectSettings, logged: Callable[[], Logged], out: Path, note: Note) -> int:
    """Fit the model of the log, save it with the estimates of all pairs to `out`, and return the number of pairs."""
    from clickprism.relevance.estimators import EstimateSettings

    estimates, model = out / "estimates.parquet", out / "log_model"
    if settings.source.read == "memory":
        from clickprism.relevance.estimate import estimate_table
        from clickprism.relevance.pair_files import read_query_texts

        outcome = settings.training.outcome
        own = EstimateSettings(seed=settings.training.seed)
        path = source_path(folder, settings)
        texts = read_query_texts(Path(path)) if is_sessions(path) else None
        return estimate_table(logged(), estimates, own, outcome=outcome, folder=model, texts=texts).pairs
    from clickprism.log.store import LogStore
    from clickprism.relevance.estimate import estimate_relevance

    since = settings.training.since
    days = [day for day in log_days(folder) if day.isoformat() >= since] if since else None
    own = EstimateSettings(seed=settings.training.seed, min_users=settings.privacy.min_users)
    store = LogStore.open(folder / LOG, note=note)
    with store.write(engine=settings.engine, memory=settings.memory) as writer:
        return estimate_relevance(store, writer.engine, estimates, own, days=days, model=model).pairs


def load_model(folder: Path) -> LogModel:
    """Return a saved model of a log."""
    from clickprism.log_model.model import LogModel

    return LogModel.load(folder)


def fit_recent(logged: Logged, seed: int) -> LogModel:
    """Fit the model to a part of the log."""
    from clickprism.log_model.model import LogModel, LogModelSettings

    return LogModel.fit(logged, settings=LogModelSettings(seed=seed, resamples=0))


def write_judgments(folder: Path, estimates: Path, out: Path, *, ingested: bool) -> dict[str, Any]:
    """Write the judgment list of a file of estimates, with the texts of queries, and count its grades."""
    from clickprism.relevance.judgments import judge_file

    texts = _write_queries(folder, estimates.with_name("queries.parquet")) if ingested else None
    found = judge_file(estimates, out, queries=texts)
    return {"judged": found.judged, "uncertain": found.uncertain, "grades": dict(found.grades)}


def _write_queries(folder: Path, out: Path) -> Path:
    """Write the text of each query of the log."""
    import duckdb
    import pyarrow.parquet as pq

    from clickprism.log.store import LogStore

    files = LogStore.open(folder / LOG).table("events").files()
    with atomic_file(out) as draft, duckdb.connect() as connection:
        rows = "SELECT query_id, min(query) AS text FROM read_parquet(?) WHERE query IS NOT NULL GROUP BY 1 ORDER BY 1"
        pq.write_table(connection.sql(rows, params=[files]).to_arrow_table(), draft)
    return out


def train(logged: Logged, out: Path, settings: ProjectSettings, name: str, say: Note) -> AutoResult:
    """Train a ranker by `auto`; an interrupted training continues."""
    from clickprism.auto.run import AutoSettings, auto

    own = settings.training
    options = AutoSettings(budget=period("training.budget", own.budget), seed=own.seed, outcome=own.outcome)
    return auto(lambda: logged, out=out, settings=options, name=name, progress=lambda _, text: say(text))


def held_out_scores(trained: Path) -> Float64:
    """Return the scores of the documents by copies of the ranker that did not learn from their query, [documents]."""
    scores: Float64 = np.load(trained / "held_out.npy", allow_pickle=False)
    return scores


def bundle_scores(bundle: Path, logged: Logged) -> Float64 | None:
    """Return the scores of the documents by a bundle; None if its features are others, [documents]."""
    from clickprism.serve.bundle.bundle import Bundle
    from clickprism.serve.scoring.scorer import Candidates, open_scorer

    opened, lists = Bundle.load(bundle), logged.clicks.lists
    wanted = tuple(opened.manifest.feature_names)
    if not set(wanted) <= set(logged.feature_names):
        return None
    columns = [logged.feature_names.index(name) for name in wanted]
    features = np.ascontiguousarray(lists.features[:, columns])
    scores = open_scorer(opened).score(Candidates(features=features, offsets=lists.offsets)).scores
    return np.asarray(scores, dtype=np.float64)


def deployment(folder: Path, settings: ProjectSettings) -> Deployment:
    """Return the deployment of the project."""
    from clickprism.serve.bundle.deployment import Deployment

    return Deployment(folder / settings.outputs.deployment)


def store_address(folder: Path, settings: ProjectSettings) -> str:
    """Return the online store of the project."""
    store = expand(settings.outputs.store)
    return store if "://" in store else str(folder / store)


def publish(
    folder: Path, settings: ProjectSettings, features: Path | None, *, clicks: bool, note: Note
) -> dict[str, Any]:
    """Publish features of documents, posteriors and click features to the store in one step."""
    from clickprism.log.store import LogStore
    from clickprism.serve.settings import PublishSettings
    from clickprism.serve.store.publish import publish

    log = LogStore.open(folder / LOG, note=note) if clicks else None
    own = PublishSettings(features=features, memory=settings.memory)
    done = publish(store_address(folder, settings), own, log=log, note=note)
    return {"version": done.info.version, "pairs": done.info.pairs, "fields": len(done.info.fields)}


def folder_bytes(paths: Iterable[Path]) -> int:
    """Return the size of files and folders on disk."""
    files = (each for path in paths for each in (path.rglob("*") if path.is_dir() else [path]))
    return sum(each.stat().st_size for each in files if each.is_file() and not each.is_symlink())
