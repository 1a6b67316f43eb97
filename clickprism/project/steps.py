"""The steps of a project, declared once: what each needs, what else it depends on, and what it does.

    source ─▶ ingest ─┬─▶ features ──────────────────────────────────────────┐
                      └─▶ log-model ─┬─▶ judgments                           ▼
                                     └─▶ decide ─▶ train ─▶ compare ─▶ promote ─▶ publish

`STEPS` is the only list. A step runs if the outputs that it needs, or what it `reads`, have changed since it last ran.
Its result is one JSON file. A step that is killed is run again, and comes to the same result.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import numpy as np

from clickprism._util.files import atomic_file, sha256
from clickprism._util.tables import counted, to_json
from clickprism.errors import DataError
from clickprism.project import retrain, source
from clickprism.project.settings import ProjectSettings, period
from clickprism.types import Float64

if TYPE_CHECKING:
    from clickprism.data.logged import Logged
    from clickprism.log_model.model import LogModel
    from clickprism.serve.bundle.deployment import Deployment

Plain: TypeAlias = Mapping[str, Any]
STATE, RANKERS, PUBLISHED = "state", "rankers", "state/features.parquet"
MODEL: Final = "state/log_model"
FEW_CLICKS: Final = 1000  # training on new days alone needs as many clicks


@final
@dataclass(frozen=True)
class StepRecord:
    """What a project records about a step that has run.

    Attributes:
        reads: Fingerprint of what the step read besides the outputs of other steps.
        needs: Fingerprint of the output of each step that this one needs.
        output: Fingerprint of the step's output.
        text: What the step did, in a few words.
        result: Result of the step.
    """

    reads: str
    needs: Mapping[str, str]
    output: str
    text: str
    result: Plain


@final
@dataclass(frozen=True)
class StepResult:
    """What a step returns: its result, a short text, and the value whose change makes later steps run again."""

    result: Plain
    text: str
    output: Any = None


@final
@dataclass(eq=False)
class Context:
    """What the steps of one run share.

    Attributes:
        folder: Folder of the project.
        settings: Its settings.
        started: Start of the run.
        say: Called with what is being done.
        records: Record of each step, of this run or an earlier one.
    """

    folder: Path
    settings: ProjectSettings
    started: datetime
    say: Callable[[str], None]
    records: dict[str, StepRecord] = field(default_factory=dict)

    def result(self, step: str) -> Plain:
        """Return the latest result of a step; empty if it never ran."""
        return self.records[step].result if step in self.records else {}

    @property
    def ingests(self) -> bool:
        """Return whether the project has an ingested log; otherwise a table is read into memory."""
        return self.settings.source.read == "ingest"

    @cached_property
    def files(self) -> dict[str, list[int]]:
        """Return the files of the source with size and time; a database has none."""
        return {} if self.settings.source.database else source.source_files(self.folder, self.settings, self.say)

    @cached_property
    def content(self) -> Any:
        """Return a value that changes with the source: the files, or the fingerprint of the rows of a database."""
        from clickprism.data.logged import log_fingerprint

        return log_fingerprint(self.logged) if self.settings.source.database else self.files

    @cached_property
    def logged(self) -> Logged:
        """Return the log in memory, read once in a run."""
        self.say("reading the log")
        return source.read_logged(self.folder, self.settings, self.say)

    def from_day(self, first: int | None) -> Logged:
        """Return the searches from a day on; all of them if it is None or the log has no days."""
        if first is None or self.logged.days is None:
            return self.logged
        return self.logged.take(self.logged.days + self.first_day >= first)

    @cached_property
    def first_day(self) -> int:
        """Return the number of the first day, from which `Logged.days` counts; 0 for tables in memory."""
        return source.log_days(self.folder)[0].toordinal() if self.ingests else 0

    @property
    def deployment(self) -> Deployment:
        """Return the deployment of the project."""
        from clickprism.serve.bundle.deployment import Deployment

        return Deployment(self.folder / self.settings.outputs.deployment)

    def model(self, folder: Path | str) -> LogModel:
        """Return a saved model of the log."""
        from clickprism.log_model.model import LogModel

        return LogModel.load(self.folder / folder / "log_model")

    def fit_recent(self, logged: Logged) -> LogModel:
        """Fit the model to a part of the log."""
        from clickprism.log_model.model import LogModel, LogModelSettings

        return LogModel.fit(logged, settings=LogModelSettings(seed=self.settings.training.seed, resamples=0))


@final
@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        name: Its name, as `run --step` takes it.
        needs: Steps whose output it uses.
        make: Does it; its docstring says what.
        reads: Returns what else it depends on.
    """

    name: str
    needs: tuple[str, ...]
    make: Callable[[Context], StepResult]
    reads: Callable[[Context], Any]

    @property
    def summary(self) -> str:
        """Return what the step does, in a sentence."""
        return (self.make.__doc__ or "").partition("\n")[0]


def fingerprint(value: Any) -> str:
    """Return 16 digits of a SHA-256 over a value of plain types and dataclasses."""
    return hashlib.sha256(to_json({"of": value}, indent=None).encode()).hexdigest()[:16]


def _source(ctx: Context) -> StepResult:
    """Look for new files, or read the database."""
    before = ctx.result("source").get("files", {})
    new = [name for name, about in ctx.files.items() if before.get(name) != about]
    size = sum(about[0] for about in ctx.files.values())
    text = f"{counted(len(ctx.files), 'file')}, {size / 1e6:,.1f} MB; {len(new):,} new"
    return StepResult({"files": ctx.files, "bytes": size}, text if ctx.files else "read the database", ctx.content)


def _ingest(ctx: Context) -> StepResult:
    """Add new rows to the log."""
    if not ctx.ingests:
        return StepResult({}, "not needed: the table is read into memory", ctx.records["source"].output)
    before: dict[str, Any] = dict(ctx.result("ingest").get("known", {}))
    new, known = [], {}
    for name, about in ctx.files.items():
        seen = before.get(name, [None, None, ""])
        digest = seen[2]
        if seen[:2] != about:
            digest = sha256(Path(name)) if ctx.settings.source.table else ""
            if digest and name in before and digest != seen[2]:
                remedy = 'Write new rows to new files, or set source.read = "memory"'
                raise DataError("has changed after its rows were added to the log", file=name, remedy=remedy)
            new += [] if digest and name in before else [name]
        known[name] = [*about, digest]
    counts = source.ingest_files(ctx.folder, ctx.settings, new, ctx.say)
    text = f"{counts['stored']:,} rows stored, {counts['duplicate']:,} duplicates, {counts['quarantined']:,} broken"
    return StepResult({"known": known, "counts": counts}, text, source.log_state(ctx.folder))


def _features(ctx: Context) -> StepResult:
    """Update sessions and the click features of a day, a week and a month; only days that changed are read."""
    if not ctx.ingests:
        return StepResult({"pairs": 0}, "not needed: a table has no click features")
    from clickprism.examination.model import chosen_model
    from clickprism.log.features.windows import features_time, windows
    from clickprism.log.settings import FeatureSettings

    store, settings = source.open_log(ctx.folder, ctx.say), ctx.settings
    with store.write(engine=settings.engine, memory=settings.memory) as writer:
        own = FeatureSettings(min_users=settings.privacy.min_users).windows(store.settings.windows)
        model = chosen_model(store.folder / "models", None)
        made = windows(store, writer.engine, features_time(store, None), examiner=model, settings=own).report()
    as_of = made.as_of.isoformat()
    return StepResult({"as_of": as_of, "pairs": made.rows}, f"{made.rows:,} pairs as of {as_of}", made.version)


def _log_model(ctx: Context) -> StepResult:
    """Fit the model of the log, and estimate the relevance of each pair."""
    before, settings, files = ctx.result("log-model"), fingerprint(_log_reads(ctx)), dict[str, int]()
    if ctx.ingests:  # a file of the log is replaced if users are erased from it
        days = source.open_log(ctx.folder).table("events").file_rows()
        files = {Path(name).name: rows for of_day in days.values() for name, rows in of_day.items()}
        if before and before["settings"] == settings and before["files"].items() <= files.items():
            old, share = sum(before["files"].values()), ctx.settings.training.refit
            if (new := sum(files.values()) - old) <= share * old:
                return StepResult(before, f"kept: {new:,} new rows are below {share:.1%}", before["fitted_on"])
    made = source.fit_model(ctx.folder, ctx.settings, lambda: ctx.logged, ctx.folder / MODEL, ctx.say)
    model = ctx.model(MODEL)
    size, curve = model.size, model.curve
    fitted_on = fingerprint([settings, ctx.records["ingest"].output])
    result = {
        "searches": size.sessions,
        "queries": size.queries,
        "impressions": size.impressions,
        "clicks": size.clicks,
        "pairs": made.pairs,
        "excluded": made.suppressed,
        "curve": {name: getattr(curve, name).tolist() for name in ("values", "lower", "upper")},
        "tests": {name: each.verdict for name, each in model.tests.items()},
        "linked": bool(model.linkage.linked),
        "settings": settings,
        "files": files,
        "fitted_on": fitted_on,
    }
    seen = float(curve.values[1:].mean()) if len(curve) > 1 else 1.0
    words = f"lower positions observed {seen:.0%} as often as the first"
    return StepResult(result, f"{size.sessions:,} searches, {size.clicks:,} clicks; {words}", fitted_on)


def _judgments(ctx: Context) -> StepResult:
    """Write the judgment list, with the texts of queries."""
    import duckdb
    import pyarrow.parquet as pq

    from clickprism.relevance.judgments import judge_file

    estimates, out = ctx.folder / MODEL / "estimates.parquet", ctx.folder / ctx.settings.outputs.judgments
    texts = estimates.with_name("queries.parquet") if ctx.ingests else None
    if texts is not None:
        files = source.open_log(ctx.folder).table("events").files()
        sql = "SELECT query_id, min(query) AS text FROM read_parquet(?) WHERE query IS NOT NULL GROUP BY 1 ORDER BY 1"
        with atomic_file(texts) as draft, duckdb.connect() as connection:
            pq.write_table(connection.sql(sql, params=[files]).to_arrow_table(), draft)
    made = judge_file(estimates, out, queries=texts)
    result = {"judged": made.judged, "uncertain": made.uncertain, "grades": dict(made.grades)}
    return StepResult(result, f"{made.judged:,} grades, {made.uncertain:,} of them uncertain: {out.name}")


def _decide(ctx: Context) -> StepResult:
    """Decide whether to train: there is no ranker, the settings changed, the log drifted, or it has grown."""
    logged, trained = ctx.logged, ctx.result("train")
    settings = fingerprint([asdict(ctx.settings.training), asdict(ctx.settings.columns)])
    result: dict[str, Any] = {"train": True, "changes": [], "from_day": None, "recent_from": None}
    if not logged.has_features:
        result["train"], reason = False, "The log has no features of documents, so the result is the judgment list."
    elif not trained.get("version"):
        reason = "There was no ranker yet."
    elif trained["settings"] != settings:
        reason = "The settings of the training have changed."
    else:
        reason = _drift(ctx, trained["baseline"], result)
    return StepResult({**result, "reason": reason, "settings": settings}, reason)


def _drift(ctx: Context, before: Plain, result: dict[str, Any]) -> str:
    """Compare the log with that of the last training; fill in the result, and return the reason."""
    own, clicks, last = ctx.settings.training, int(ctx.logged.clicks.clicks.sum()), before["last_day"]
    start = None if ctx.logged.days is None or last is None else last + 1
    recent = ctx.from_day(start)
    if not ctx.ingests and not len(recent.clicks):  # the table was replaced by one with the same days
        recent, start = ctx.logged, None
    new, drifted = int(recent.clicks.clicks.sum()), []
    if new >= own.new_clicks:
        ctx.say("testing the new searches for drift")
        found = retrain.changes(before, recent, ctx.fit_recent(recent), _current_scores(ctx, recent), own)
        result |= {"changes": [asdict(each) for each in found], "recent_from": start}
        drifted = [each.name for each in found if each.drifted]
    if drifted:
        result["from_day"] = start if new >= FEW_CLICKS else None
        return f"The log has drifted: {', '.join(drifted)}."
    if clicks >= own.growth * before["clicks"]:
        return f"The log has {clicks / before['clicks']:.1f} times the clicks of the last training."
    result |= {"train": False, "recent_from": None}
    if new < own.new_clicks:
        return f"Only {new:,} new clicks on new days; drift is tested from {own.new_clicks:,} on."
    return f"{new:,} new clicks show no drift." if start is not None else "The changed table shows no drift."


def _current_scores(ctx: Context, logged: Logged) -> Float64 | None:
    """Return the scores of the documents by the current ranker; None if there is none, or it needs other features."""
    if not ctx.deployment.exists():
        return None
    from clickprism.serve.bundle.bundle import Bundle
    from clickprism.serve.scoring.scorer import Candidates, open_scorer

    bundle, lists = Bundle.load(ctx.deployment.current().folder), logged.clicks.lists
    wanted = tuple(bundle.manifest.feature_names)
    if not set(wanted) <= set(logged.feature_names):
        return None
    features = np.ascontiguousarray(lists.features[:, [logged.feature_names.index(name) for name in wanted]])
    scores = open_scorer(bundle).score(Candidates(features=features, offsets=lists.offsets)).scores
    return np.asarray(scores, dtype=np.float64)


def _held_out_scores(folder: Path) -> Float64:
    """Return the scores of the documents by copies of the ranker that did not learn from their query, [documents]."""
    scores: Float64 = np.load(folder / "held_out.npy", allow_pickle=False)
    return scores


def _train(ctx: Context) -> StepResult:
    """Train and check a ranker; an interrupted training continues."""
    decision, own = ctx.result("decide"), ctx.settings.training
    if not decision["train"]:
        return StepResult({**ctx.result("train"), "new": False}, "not needed")
    from clickprism.auto.run import AutoSettings, auto

    name = fingerprint([ctx.records["log-model"].output, decision["settings"], decision["from_day"]])
    out, logged = ctx.folder / RANKERS / name, ctx.from_day(decision["from_day"])
    options = AutoSettings(budget=period("training.budget", own.budget), seed=own.seed, outcome=own.outcome)
    found = auto(
        lambda: logged, out=out, settings=options, name=ctx.folder.name, progress=lambda _, text: ctx.say(text)
    )
    if found.bundle is None:
        refused = found.stages["choice"]["refused"]
        return StepResult({"new": False, "version": "", "refused": refused, "folder": name}, f"no ranker: {refused}")
    base = retrain.baseline(logged, ctx.model(out), _held_out_scores(out))
    if base["last_day"] is not None:
        base["last_day"] += ctx.first_day
    value = found.stages["value"]
    said = (value["sentence"] or value["refusal"]).partition(" Each query was ranked")[0]
    return StepResult(
        {
            "new": True,
            "version": found.stages["bundle"]["version"],
            "folder": name,
            "ranker": found.chosen,
            "verdict": list(found.verdict),
            "value": said,
            "valued": bool(value["sentence"]),
            "worse_than_log": _is_worse(value.get("numbers", {})),
            "findings": {each.name: [each.verdict, each.sentence] for each in found.diagnosis.findings.values()},
            "settings": decision["settings"],
            "baseline": base,
        },
        f"{found.chosen}: {said}",
    )


def _is_worse(numbers: Plain) -> bool:
    """Return whether the best counterfactual estimate says that the ranker gets fewer clicks than the log."""
    best = numbers.get("best")
    return bool(best) and (numbers["estimates"][best]["difference"]["upper"] or 0.0) < 0


def _compare(ctx: Context) -> StepResult:
    """Compare the new ranker with the current one, or with the order of the log if there is none."""
    trained, decision, own = ctx.result("train"), ctx.result("decide"), ctx.settings.promotion
    if not trained.get("new"):
        return StepResult({**ctx.result("compare"), "new": False}, "not needed: there is no new ranker")
    logged = ctx.from_day(decision["recent_from"])
    scores, folder = _current_scores(ctx, logged), ctx.folder / RANKERS / trained["folder"]
    if scores is None:
        better, reason = not trained["worse_than_log"], "It is the first ranker."
        if ctx.deployment.exists():
            reason = "The current ranker uses features that the log no longer has."
        reason = f"{reason if better else 'It would get fewer clicks than the log.'} {trained['value']}"
        return StepResult({"new": True, "promote": better, "reason": reason}, reason)
    model = ctx.model(folder) if logged is ctx.logged else ctx.fit_recent(logged)
    likelihood, value = retrain.compare(logged, model, _held_out_scores(folder), scores, own.confidence)
    better, reason = retrain.verdict(likelihood, value, own)
    if better and not own.automatic:
        better, reason = False, f"{reason} It waits, since promotion.automatic is false: clickprism model promote."
    numbers = {"likelihood": asdict(likelihood), "value": asdict(value), "searches": logged.clicks.sessions}
    return StepResult({"new": True, "promote": better, "reason": reason, **numbers}, reason)


def _promote(ctx: Context) -> StepResult:
    """Promote the new ranker if it is better, at once or by a rollout; otherwise keep it as shadow."""
    trained, compared, before = ctx.result("train"), ctx.result("compare"), ctx.result("promote")
    version, now = trained.get("version"), {"version": "", "folder": "", "since": "", **before, "rollout": ""}
    begun = before.get("rollout") and before["rollout"] == version
    if not begun and (not compared.get("new") or before.get("decided") == version):
        return StepResult(before, "not needed: there is no new ranker")
    bundle = ctx.folder / RANKERS / trained["folder"] / "bundle"
    better, reason = compared["promote"], compared["reason"]
    if begun or (better and ctx.settings.promotion.rollout and ctx.deployment.exists()):
        outcome, reason = _roll_out(ctx, bundle, begun=bool(begun))
        better, now["rollout"] = outcome == "promoted", version if outcome == "running" else ""
        now["decided"] = "" if outcome == "running" else version
    if better:
        if not begun:
            ctx.deployment.promote(bundle)
        since = ctx.started.isoformat()
        now |= {"version": version, "folder": trained["folder"], "since": since, "shadow": "", "reason": reason}
        text = f"promoted {version}"
    else:
        now |= {"shadow": trained["folder"], "shadow_reason": reason}
        text = f"rollout of {version}: {reason}" if now["rollout"] else f"kept as shadow: {reason}"
    for old in (ctx.folder / RANKERS).iterdir():
        if old.name not in {now["folder"], now["shadow"], trained["folder"]}:
            shutil.rmtree(old, ignore_errors=True)
    return StepResult(now, text)


def _roll_out(ctx: Context, bundle: Path, *, begun: bool) -> tuple[str, str]:
    """Start a rollout (ending one that runs), or count the clicks of the running one; return outcome and reason."""
    from clickprism.serve.bundle import rollout
    from clickprism.serve.settings import RolloutSettings

    now = rollout.status(ctx.deployment)
    running = now is not None and now.outcome == "running"
    if not begun:
        if running:
            rollout.stop(ctx.deployment)
        return "running", rollout.start(ctx.deployment, bundle, RolloutSettings()).reason
    if running:
        now = rollout.advance(ctx.deployment, source.open_log(ctx.folder))
    return ("taken back", "The rollout was deleted.") if now is None else (now.outcome, now.reason)


def _publish(ctx: Context) -> StepResult:
    """Publish the features of documents with the posterior of each pair, and the click features of the log."""
    if not ctx.deployment.exists():
        return StepResult({}, "not needed: there is no ranker to serve")
    from clickprism.serve.settings import PublishSettings
    from clickprism.serve.store.publish import publish

    file, model = ctx.folder / PUBLISHED, ctx.records["log-model"].output
    if ctx.result("publish").get("model") != model or not file.is_file():
        _write_features(ctx, file)
    log = source.open_log(ctx.folder, ctx.say) if ctx.result("features").get("pairs") else None
    own = PublishSettings(features=file, memory=ctx.settings.memory)
    info = publish(ctx.settings.store(ctx.folder), own, log=log, note=ctx.say).info
    result = {"version": info.version, "pairs": info.pairs, "fields": len(info.fields), "model": model}
    return StepResult(result, f"{info.pairs:,} pairs with {len(info.fields)} fields")


def _write_features(ctx: Context, file: Path) -> None:
    """Write the features of each pair, and its posterior if enough users saw it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    lists = ctx.logged.clicks.lists
    ids = np.arange(lists.documents).astype(str) if lists.document_ids is None else lists.document_ids
    columns = {
        "query_id": pa.array(lists.query_ids[lists.list_of].astype(str).tolist()),
        "document_id": pa.array(ids.tolist()),
    }
    for number, name in enumerate(ctx.logged.feature_names):
        columns[name] = pa.array(lists.features[:, number].astype(np.float32))
    keys, names = ["query_id", "document_id"], ["estimate", "lower", "upper"]
    known = pq.read_table(ctx.folder / MODEL / "estimates.parquet", columns=[*keys, *names])
    posterior = pa.table(
        {name: known[name].cast(pa.string()) for name in keys}
        | {f"posterior.{name}": known[name].cast(pa.float32()) for name in names}
    )
    table = pa.table(columns).join(posterior, keys, join_type="left outer")
    with atomic_file(file, parents=True) as draft:
        pq.write_table(table.sort_by([(name, "ascending") for name in keys]), draft, compression="zstd")


def _engine(ctx: Context) -> Any:
    return ctx.settings.engine, ctx.settings.privacy.min_users


def _log_reads(ctx: Context) -> list[Any]:
    return [*_engine(ctx), asdict(ctx.settings.training), asdict(ctx.settings.columns)]


def _ingest_reads(ctx: Context) -> list[Any]:
    return [asdict(ctx.settings.source), asdict(ctx.settings.columns), source.log_state(ctx.folder)]


def _promote_reads(ctx: Context) -> list[Any]:
    running = ctx.result("promote").get("rollout")
    return [ctx.settings.outputs.deployment, [running, source.log_state(ctx.folder)] if running else None]


STEPS: Final = (
    Step("source", (), _source, lambda ctx: [asdict(ctx.settings.source), ctx.content]),
    Step("ingest", ("source",), _ingest, _ingest_reads),
    Step("features", ("ingest",), _features, _engine),
    Step("log-model", ("ingest",), _log_model, _log_reads),
    Step("judgments", ("log-model",), _judgments, lambda ctx: ctx.settings.outputs.judgments),
    Step("decide", ("log-model",), _decide, lambda ctx: asdict(ctx.settings.training)),
    Step("train", ("decide", "log-model"), _train, lambda _: None),
    Step("compare", ("train", "decide"), _compare, lambda ctx: asdict(ctx.settings.promotion)),
    Step("promote", ("compare",), _promote, _promote_reads),
    Step("publish", ("features", "log-model", "promote"), _publish, lambda ctx: ctx.settings.outputs.store),
)
NAMES: Final = tuple(step.name for step in STEPS)
