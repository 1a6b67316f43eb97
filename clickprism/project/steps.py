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
from clickprism._util.tables import to_json
from clickprism.errors import DataError
from clickprism.project import calls, retrain
from clickprism.project.settings import ProjectSettings

if TYPE_CHECKING:
    from clickprism.data.logged import Logged

Plain: TypeAlias = Mapping[str, Any]
STATE, RANKERS, PUBLISHED = "state", "rankers", "state/features.parquet"
MODEL: Final = "state/log_model"
FEW_CLICKS: Final = 1000  # training on new days alone needs as many clicks


@final
@dataclass(frozen=True)
class Kept:
    """What is known of a step that has run.

    Attributes:
        reads: Fingerprint of what it read besides the outputs of other steps.
        needs: Output of each step that it needed.
        output: Fingerprint of its output.
        text: What it did, in a few words.
        result: Its result.
    """

    reads: str
    needs: Mapping[str, str]
    output: str
    text: str
    result: Plain


@final
@dataclass(frozen=True)
class Made:
    """What a step returns: its result, a few words, and what its output depends on (by default the result)."""

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
        kept: Results by step: of this run, or of earlier ones.
    """

    folder: Path
    settings: ProjectSettings
    started: datetime
    say: Callable[[str], None]
    kept: dict[str, Kept] = field(default_factory=dict)

    def result(self, step: str) -> Plain:
        """Return the latest result of a step; empty if it never ran."""
        return self.kept[step].result if step in self.kept else {}

    @property
    def ingests(self) -> bool:
        """Return whether the project has an ingested log; otherwise a table is read into memory."""
        return self.settings.source.read == "ingest"

    @cached_property
    def files(self) -> dict[str, list[int]]:
        """Return the files of the source with size and time; a database has none."""
        if calls.is_database(self.settings.source.path):
            return {}
        return calls.source_files(self.folder, self.settings, self.say)

    @cached_property
    def logged(self) -> Logged:
        """Return the log in memory, read once in a run."""
        self.say("reading the log")
        return calls.read_logged(self.folder, self.settings, self.say)

    @cached_property
    def first_day(self) -> int:
        """Return the number of the first day, from which `Logged.days` counts; 0 for tables in memory."""
        return calls.log_days(self.folder)[0].toordinal() if self.ingests else 0


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
    make: Callable[[Context], Made]
    reads: Callable[[Context], Any]

    @property
    def summary(self) -> str:
        """Return what it does."""
        return (self.make.__doc__ or "").partition("\n")[0]


def fingerprint(value: Any) -> str:
    """Return 16 digits of a SHA-256 over a value of plain types and dataclasses."""
    return hashlib.sha256(to_json({"of": value}, indent=None).encode()).hexdigest()[:16]


def _content(ctx: Context) -> Any:
    """Return the files with size and time, or the fingerprint of the rows of a database."""
    if not calls.is_database(ctx.settings.source.path):
        return ctx.files
    from clickprism.data.logged import log_fingerprint

    return log_fingerprint(ctx.logged)


def _source(ctx: Context) -> Made:
    """Look for new files, or read the database."""
    before = ctx.result("source").get("files", {})
    new = [name for name, about in ctx.files.items() if before.get(name) != about]
    size = sum(about[0] for about in ctx.files.values())
    text = f"{len(ctx.files):,} files, {size / 1e6:,.1f} MB; {len(new):,} new" if ctx.files else "read the database"
    return Made({"files": ctx.files, "bytes": size}, text, _content(ctx))


def _ingest(ctx: Context) -> Made:
    """Add new rows to the log."""
    if not ctx.ingests:
        return Made({}, "not needed: the table is read into memory", ctx.kept["source"].output)
    before: dict[str, Any] = dict(ctx.result("ingest").get("known", {}))
    new = [name for name, about in ctx.files.items() if before.get(name, [None])[:2] != about]
    hashes = {name: sha256(Path(name)) for name in new} if ctx.settings.source.table else {}
    for name in [each for each in new if each in before and each in hashes]:
        if before[name][2] != hashes[name]:
            remedy = 'Write new rows to new files, or set source.read = "memory"'
            raise DataError("has changed after its rows were added to the log", file=name, remedy=remedy)
        new.remove(name)
    counts = calls.ingest_files(ctx.folder, ctx.settings, new, ctx.say)
    known = {name: [*about, hashes.get(name, "")] for name, about in ctx.files.items()}
    known = {name: [*about[:2], about[2] or before.get(name, ["", "", ""])[2]] for name, about in known.items()}
    text = f"{counts['stored']:,} rows stored, {counts['duplicate']:,} duplicates, {counts['quarantined']:,} broken"
    return Made({"known": known, "counts": counts}, text, calls.log_state(ctx.folder))


def _features(ctx: Context) -> Made:
    """Update sessions and the click features of a day, a week and a month."""
    if not ctx.ingests:
        return Made({"pairs": 0}, "not needed: a table has no click features")
    made = calls.update_features(ctx.folder, ctx.settings, ctx.say)
    shown = {name: made[name] for name in ("as_of", "pairs")}
    return Made(shown, f"{made['pairs']:,} pairs as of {made['as_of']}", made["version"])


def _log_model(ctx: Context) -> Made:
    """Fit the model of the log, and estimate the relevance of each pair."""
    out, before = ctx.folder / MODEL, ctx.result("log-model")
    settings = fingerprint(_log_reads(ctx))
    files = calls.event_files(ctx.folder) if ctx.ingests else {}
    if before and ctx.ingests and before["settings"] == settings and before["files"].items() <= files.items():
        new, old = sum(files.values()) - sum(before["files"].values()), sum(before["files"].values())
        if new <= (share := ctx.settings.training.refit) * old:
            return Made(before, f"kept: {new:,} new rows are below {share:.1%}", before["fitted_on"])
    pairs = calls.fit_model(ctx.folder, ctx.settings, lambda: ctx.logged, out, ctx.say)
    model = calls.load_model(out / "log_model")
    size, curve = model.size, model.curve
    result = {
        "searches": size.sessions,
        "queries": size.queries,
        "impressions": size.impressions,
        "clicks": size.clicks,
        "pairs": pairs,
        "curve": {name: getattr(curve, name).tolist() for name in ("values", "lower", "upper")},
        "tests": {name: each.verdict for name, each in model.tests.items()},
        "linked": bool(model.linkage.linked),
    }
    seen = float(curve.values[1:].mean()) if len(curve) > 1 else 1.0
    text = (
        f"{size.sessions:,} searches, {size.clicks:,} clicks; lower positions observed {seen:.0%} as often as the first"
    )
    fitted_on = fingerprint([settings, ctx.kept["ingest"].output])
    return Made({**result, "settings": settings, "files": files, "fitted_on": fitted_on}, text, fitted_on)


def _judgments(ctx: Context) -> Made:
    """Write the judgment list."""
    out = ctx.folder / ctx.settings.outputs.judgments
    made = calls.write_judgments(ctx.folder, ctx.folder / MODEL / "estimates.parquet", out, ingested=ctx.ingests)
    return Made(made, f"{made['judged']:,} grades, {made['uncertain']:,} of them uncertain: {out.name}")


def _decide(ctx: Context) -> Made:  # noqa: PLR0911 - one for each reason
    """Decide whether to train: there is no ranker, the settings changed, the log drifted, or it has grown."""
    own, logged, trained = ctx.settings.training, ctx.logged, ctx.result("train")
    settings = fingerprint([asdict(own), asdict(ctx.settings.columns)])

    def decided(
        train: bool, reason: str, changes: Any = (), from_day: int | None = None, recent: int | None = None
    ) -> Made:
        plain = [asdict(each) for each in changes]
        result = {"train": train, "reason": reason, "changes": plain, "from_day": from_day, "recent_from": recent}
        return Made({**result, "settings": settings}, reason)

    if not logged.has_features:
        return decided(False, "The log has no features of documents, so the result is the judgment list.")
    if not trained.get("version"):
        return decided(True, "There is no ranker yet.")
    if trained["settings"] != settings:
        return decided(True, "The settings of the training have changed.")
    before = trained["baseline"]
    clicks = int(logged.clicks.clicks.sum())
    last = before["last_day"]
    recent = None if logged.days is None or last is None else logged.take(logged.days + ctx.first_day > last)
    new = 0 if recent is None or not len(recent) else int(recent.clicks.clicks.sum())
    start = None if last is None else last + 1
    if recent is not None and new >= own.new_clicks:
        ctx.say("testing the new searches for drift")
        model = calls.fit_recent(recent, own.seed)
        found = retrain.changes(before, recent, model, _current_scores(ctx, recent), own)
        drifted = [each.name for each in found if each.drifted]
        if drifted:
            alone = start if new >= FEW_CLICKS else None
            return decided(True, f"The log has drifted: {', '.join(drifted)}.", found, alone, start)
        if clicks >= own.growth * before["clicks"]:
            return decided(True, f"The log has {clicks / before['clicks']:.1f} times the clicks.", found, None, start)
        return decided(False, f"{new:,} new clicks show no drift.", found)
    if clicks >= own.growth * before["clicks"]:
        return decided(True, f"The log has {clicks / before['clicks']:.1f} times the clicks of the last training.")
    return decided(False, f"Only {new:,} new clicks on new days; drift is tested from {own.new_clicks:,} on.")


def _current_scores(ctx: Context, logged: Logged) -> Any:
    deployed = calls.deployment(ctx.folder, ctx.settings)
    return calls.bundle_scores(deployed.current().folder, logged) if deployed.exists() else None


def _train(ctx: Context) -> Made:
    """Train and check a ranker."""
    decision, before = ctx.result("decide"), ctx.result("train")
    if not decision["train"]:
        return Made({**before, "new": False}, "not needed")
    name = fingerprint([ctx.kept["log-model"].output, decision["settings"], decision["from_day"]])
    out = ctx.folder / RANKERS / name
    logged, days = ctx.logged, ctx.logged.days
    if decision["from_day"] is not None and days is not None:
        logged = logged.take(days + ctx.first_day >= decision["from_day"])
    found = calls.train(logged, out, ctx.settings, ctx.folder.name, ctx.say)
    if found.bundle is None:
        refused = found.stages["choice"]["refused"]
        return Made({"new": False, "version": "", "refused": refused, "folder": name}, f"no ranker: {refused}")
    scores, model = calls.held_out_scores(out), calls.load_model(out / "log_model")
    base = retrain.baseline(logged, model, scores)
    if base["last_day"] is not None:
        base["last_day"] += ctx.first_day
    value = found.stages["value"]
    said = (value["sentence"] or value["refusal"]).partition(" Each query was ranked")[0]
    return Made(
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


def _compare(ctx: Context) -> Made:
    """Compare the new ranker with the current one, or with the order of the log if there is none."""
    trained, decision, own = ctx.result("train"), ctx.result("decide"), ctx.settings.promotion
    if not trained.get("new"):
        return Made({**ctx.result("compare"), "new": False}, "not needed: there is no new ranker")
    deployed = calls.deployment(ctx.folder, ctx.settings)
    scores = _current_scores(ctx, ctx.logged)
    if scores is None:
        better, reason = not trained["worse_than_log"], "It is the first ranker."
        if deployed.exists():
            reason = "The current ranker uses features that the log no longer has."
        reason = f"{reason if better else 'It would get fewer clicks than the log.'} {trained['value']}"
        return Made({"new": True, "promote": better, "reason": reason}, reason)
    folder, logged = ctx.folder / RANKERS / trained["folder"], ctx.logged
    if decision["recent_from"] is not None and logged.days is not None:
        logged = logged.take(logged.days + ctx.first_day >= decision["recent_from"])
        model = calls.fit_recent(logged, ctx.settings.training.seed)
    else:
        model = calls.load_model(folder / "log_model")
    likelihood, value = retrain.compare(logged, model, calls.held_out_scores(folder), scores, own.confidence)
    better, reason = retrain.verdict(likelihood, value, own)
    if better and not own.automatic:
        better, reason = False, f"{reason} It waits, since promotion.automatic is false: clickprism model promote."
    numbers = {"likelihood": asdict(likelihood), "value": asdict(value), "searches": logged.clicks.sessions}
    return Made({"new": True, "promote": better, "reason": reason, **numbers}, reason)


def _promote(ctx: Context) -> Made:
    """Promote the new ranker if it is better, at once or by a rollout; otherwise keep it as shadow."""
    trained, compared, before = ctx.result("train"), ctx.result("compare"), ctx.result("promote")
    deployed, version = calls.deployment(ctx.folder, ctx.settings), trained.get("version")
    now: dict[str, Any] = {"version": "", "folder": "", "since": "", **before, "rollout": ""}
    begun = before.get("rollout") and before["rollout"] == version
    if not begun and (not compared.get("new") or before.get("decided") == version):
        return Made(before, "not needed: there is no new ranker")
    bundle = ctx.folder / RANKERS / trained["folder"] / "bundle"
    better, reason = compared["promote"], compared["reason"]
    if begun:
        outcome, reason = calls.continue_rollout(ctx.folder, deployed)
        better, now["rollout"] = outcome == "promoted", version if outcome == "running" else ""
        now["decided"] = "" if outcome == "running" else version
    elif better and ctx.settings.promotion.rollout and deployed.exists():
        reason = calls.begin_rollout(deployed, bundle)
        better, now["rollout"] = False, version
    if better:
        if not begun:
            deployed.promote(bundle)
        since = ctx.started.isoformat()
        now |= {"version": version, "folder": trained["folder"], "since": since, "shadow": "", "reason": reason}
        text = f"promoted {version}"
    else:
        now |= {"shadow": trained["folder"], "shadow_reason": reason}
        text = f"rollout of {version}: {reason}" if now["rollout"] else f"kept as shadow: {reason}"
    kept = {now["folder"], now["shadow"], trained["folder"]}
    for old in (ctx.folder / RANKERS).iterdir():
        if old.name not in kept:
            shutil.rmtree(old, ignore_errors=True)
    return Made(now, text)


def _publish(ctx: Context) -> Made:
    """Publish the features of documents with the posterior of each pair, and the click features of the log."""
    if not calls.deployment(ctx.folder, ctx.settings).exists():
        return Made({}, "not needed: there is no ranker to serve")
    file, model = ctx.folder / PUBLISHED, ctx.kept["log-model"].output
    if ctx.result("publish").get("model") != model or not file.is_file():
        _write_features(ctx, file)
    clicks = bool(ctx.ingests and ctx.result("features").get("pairs"))
    made = calls.publish(ctx.folder, ctx.settings, file, clicks=clicks, note=ctx.say)
    return Made({**made, "model": model}, f"{made['pairs']:,} pairs with {made['fields']} fields")


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
    return [asdict(ctx.settings.source), asdict(ctx.settings.columns), calls.log_state(ctx.folder)]


def _promote_reads(ctx: Context) -> list[Any]:
    running = ctx.result("promote").get("rollout")
    return [ctx.settings.outputs.deployment, [running, calls.log_state(ctx.folder)] if running else None]


STEPS: Final = (
    Step("source", (), _source, lambda ctx: [asdict(ctx.settings.source), _content(ctx)]),
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
