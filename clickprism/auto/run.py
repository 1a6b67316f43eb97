"""`auto`: from a click log to a ranker that can be served, without labels.

Each stage writes its result to one file of the folder. A call that was interrupted continues with the first stage that
has no file, and comes to the same result.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Unpack, final

import numpy as np

from clickprism._util.files import sha256, write_file
from clickprism._util.resumable import Stage, StageFolder
from clickprism.auto import report
from clickprism.data.click_table import ColumnNames
from clickprism.data.encoding import Encoding
from clickprism.data.logged import Logged, log_fingerprint
from clickprism.diagnosis.finding import Diagnosis, diagnosis_of, kept_diagnosis
from clickprism.errors import DataError, SettingError, TrainingError, UnsupportedError
from clickprism.log_model.value import click_value
from clickprism.model import Model

if TYPE_CHECKING:
    from clickprism.auto.checks import Checked
    from clickprism.log_model.model import LogModel
    from clickprism.serve.scoring.evidence import Evidence

Progress: TypeAlias = Callable[[str, str], None]
Source: TypeAlias = Any
"""What `read_log` takes, or a function that returns a log."""
Plain: TypeAlias = Mapping[str, Any]

STAGES: Final = ("read", "model", "diagnosis", "choice", "value", "grades", "bundle", "report")
POINTS: Final = tuple(f"{stage}-{what}" for stage in STAGES for what in ("made", "kept"))
"""The crash points of a run: before and after the file of each stage is written."""
LOG_MODEL, RANKER, RAW, IMITATION, BUNDLE = "log_model", "model", "naive", "imitation", "bundle"
FLATTENED: Final = "log_model_flattened"  # the model of the log, if a check required a flatter curve
ENCODING: Final = "encoding.json"  # how the columns of a table became the features
HELD_OUT: Final = "held_out.npy"  # scores of the documents by copies that did not learn from their query
EXAMPLES: Final = 200  # queries in the page of the bundle


@final
@dataclass(frozen=True, kw_only=True)
class AutoSettings:
    """What a run of `auto` depends on, besides the log.

    Attributes:
        budget: Time for all stages together, such as 90s, 10m or 1.5h. Training does not stop early; if the time is
            used up after it, the estimate of how many clicks the ranker would get is skipped.
        seed: Random seed.
        outcome: What the ranker is trained for: click, another outcome of the log such as booking, or a weighted sum
            such as "click + 5*cart + 20*purchase".
    """

    budget: timedelta = timedelta(minutes=10)
    seed: int = 0
    outcome: str = "click"

    def __post_init__(self) -> None:
        if self.budget <= timedelta(0):
            raise SettingError("budget", str(self.budget), "be a time above 0, such as 10m")
        if self.seed < 0:
            raise SettingError("seed", self.seed, "be at least 0")


DEFAULT: Final = AutoSettings()


@final
@dataclass(frozen=True, eq=False)
class AutoResult:
    """The result of `auto`.

    Attributes:
        out: Folder of the run.
        diagnosis: Findings of the log.
        chosen: Name of the ranker; None if no ranker can be trained.
        verdict: What was corrected, how sure that is, and what the ranker may be used for, one sentence each.
        unknown: What the log cannot show, one sentence each.
        steps: What to do next, one sentence each, the most useful first.
        bundle: Folder to serve; None without a ranker.
        report: The page.
        stages: Result of each stage, as its file has it.
        seconds: Time that each stage took.
    """

    out: Path
    diagnosis: Diagnosis
    chosen: str | None
    verdict: tuple[str, ...]
    unknown: tuple[str, ...]
    steps: tuple[str, ...]
    bundle: Path | None
    report: Path
    stages: Mapping[str, Plain]
    seconds: Mapping[str, float]

    def __repr__(self) -> str:
        return f"AutoResult({self.chosen or 'no ranker'}, report {str(self.report)!r})"

    def score(self, frame: Any) -> Any:
        """Return the score of each row of a frame; within a query, higher scores rank first.

        Args:
            frame: A frame as `read_log` takes it, with the columns of the features. They are encoded as in training.

        Returns:
            A column of the library of the frame: a pandas Series with the index of the frame, a polars Series, an Arrow
            array, or a numpy array.
        """
        from clickprism.data.tables import in_the_type_of, to_arrow
        from clickprism.types import Lists

        if self.bundle is None:
            raise UnsupportedError("there is no ranker to score with", remedy=self.stages["choice"]["refused"])
        if not (self.out / ENCODING).exists():
            raise UnsupportedError(
                "the ranker was not trained on the columns of a table",
                remedy="Score files with: clickprism model score, or train it on a frame",
            )
        features = Encoding.load(self.out / ENCODING).apply(to_arrow(frame))
        lists = Lists(features, np.array([0, len(features)]), np.array(["all"]))
        return in_the_type_of(frame, Model.load(self.out / RANKER).score(lists), "score")

    def text(self, *, log: str | None = None, options: Sequence[str] = (), program: str = "clickprism") -> str:
        """Return what `clickprism auto` prints at the end: verdict, checks and what to do next.

        Args:
            log: The log as it was named on the command line.
            options: Options that say how the log is read, such as --map.
            program: What to type to run clickprism.
        """
        counts, bundle = self.stages["read"]["counts"], self.bundle is not None
        estimable = 0 < counts["clicks"] < counts["impressions"]
        lines = report.commands(self.out, log, bundle=bundle, options=options, estimable=estimable, program=program)
        return report.terminal(self.stages, self.verdict, self.steps, lines)


def auto(
    log: Source,
    *,
    out: Path | str = "runs/auto",
    settings: AutoSettings = DEFAULT,
    grades: Path | str | None = None,
    engine: str | None = None,
    name: str = "",
    progress: Progress | None = None,
    **columns: Unpack[ColumnNames],
) -> AutoResult:
    """Train a ranker from a click log, check it without labels, and write a bundle and a report.

    Each stage's result is a file in `out`. A stage that is complete is not run again: a call that was interrupted
    continues, and comes to the same result. The folder has report.html, auto.json and, if a ranker could be trained,
    bundle/.

    Args:
        log: Anything that `read_log` reads: a frame, files, a query to a database, an ingested log; or a function that
            returns a log.
        out: Folder of the run; one of another log or of another seed is refused.
        settings: Time budget and random seed.
        grades: File of grades in the TREC format (query id, 0, document id, grade), on which the ranker and the order
            of the log are evaluated at the end. Nothing is trained on them.
        engine: Format of `clickprism model export`, such as opensearch: only rankers and normalisers that it can hold
            are chosen. By default any.
        name: Name of the log in the report; by default that of the file.
        progress: Called with the name of a stage and what it is doing.
        columns: Which column of a table holds what, as `read_log` takes it.

    Returns:
        What was found, chosen and why. A log without features has no ranker: `bundle` is None, and `steps` says what
        to do instead.
    """
    say: Progress = progress or (lambda _stage, _text: None)
    held = None
    if engine is not None:
        from clickprism.serve.export.export import holds

        held = holds(engine)
    name = name or (Path(log).name if isinstance(log, Path | str) else "the log")
    say("read", f"reading {name}")
    begun = time.perf_counter()
    logged = _read(log, columns)
    spent = time.perf_counter() - begun
    judged = None if grades is None else Path(grades)
    identity = {"log": log_fingerprint(logged), "seed": settings.seed, "grades": _digest(judged)}
    value = click_value(logged, settings.outcome)
    if engine is not None:
        identity["engine"] = engine
    if value is not None:
        identity["outcome"] = settings.outcome
        logged = replace(value.relative(logged), notes=(*logged.notes, value.sentence))
    with StageFolder.opened(Path(out), command="auto", identity=identity) as folder:
        run = _Run(folder=folder, logged=logged, settings=settings, grades=judged, held=held, name=name, say=say)
        return run.all(spent)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Run:
    """The stages of one run, in order."""

    folder: StageFolder
    logged: Logged
    settings: AutoSettings
    grades: Path | None
    held: dict[str, tuple[str, ...]] | None
    name: str
    say: Progress
    done: dict[str, Stage] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.folder.path

    def all(self, spent: float) -> AutoResult:
        """Run every stage that has no file yet; `spent` is the time in seconds that reading took."""
        self._stage("read", "counting searches and clicks", self._read, spent)
        self._stage("model", "fitting the model of the log", self._model)
        found = self._stage("diagnosis", "looking for biases", self._diagnosis)
        diagnosis = diagnosis_of(found)
        choice = self._stage("choice", "training candidates" if self.logged.has_features else "", self._choice)
        doing = ["estimating how many clicks the ranker would get", "evaluating on the grades", "writing the bundle"]
        doing = doing if choice["chosen"] else ["", "", ""]  # without a ranker these stages do nothing
        value = self._stage("value", doing[0], lambda: self._value(choice))
        self._stage("grades", doing[1] if self.grades else "", lambda: self._grades(choice))
        made = self._stage("bundle", doing[2], lambda: self._bundle(choice, value, diagnosis))
        stages = {stage: kept.result for stage, kept in self.done.items()}
        result = AutoResult(
            self.path,
            diagnosis,
            choice["chosen"],
            tuple(report.verdict(stages, diagnosis)),
            tuple(report.unknown(stages, diagnosis)),
            tuple(report.next_steps(stages, diagnosis)),
            self.path / BUNDLE if made["version"] else None,
            self.path / report.REPORT,
            stages,
            {stage: kept.seconds for stage, kept in self.done.items()},
        )
        self._stage("report", "writing the report", lambda: report.write_pages(result, found["figures"], self.name))
        return result

    def _read(self) -> Plain:
        return report.described(self.logged, self.name, self.settings.outcome)

    def _stage(self, which: str, doing: str, make: Callable[[], Plain], spent: float = 0.0) -> Plain:
        if doing:
            self.say(which, "complete" if self.folder.done(which) else doing)
        self.done[which] = self.folder.stage(which, make, spent=spent)
        return self.done[which].result

    def _progress(self, stage: str) -> Callable[[str], None]:
        return lambda text: self.say(stage, text)

    def _model(self) -> Plain:
        """Fit the model of the log once, for all stages; a log that is too small has none."""
        from clickprism.log_model.model import LogModel, LogModelSettings

        settings = LogModelSettings(seed=self.settings.seed)
        try:
            model = LogModel.fit(self.logged, settings=settings, progress=self._progress("model"))
        except (DataError, TrainingError) as error:
            return {"fitted": False, "problem": str(error).rstrip(".")}
        model.save(self.path / LOG_MODEL)
        return {"fitted": True, "problem": ""}

    def _log_model(self, name: str = LOG_MODEL) -> LogModel | None:
        from clickprism.log_model.model import LogModel

        return LogModel.load(self.path / name) if self.done["model"].result["fitted"] else None

    def _corrected_by(self) -> LogModel | None:
        """Return the model whose curve corrected the clicks."""
        return self._log_model(FLATTENED if (self.path / FLATTENED).exists() else LOG_MODEL)

    def _diagnosis(self) -> Plain:
        from clickprism.diagnosis.diagnose import diagnose

        as_of, progress = self.folder.started.isoformat(), self._progress("diagnosis")
        return kept_diagnosis(
            diagnose(self.logged, seed=self.settings.seed, model=self._log_model(), progress=progress, as_of=as_of)
        )

    def _choice(self) -> Plain:
        """Train and check the candidates, and save the rankers; or say why none can be trained."""
        estimable = bool(self.logged.clicks.clicks.any()) and not self.logged.has_only_clicks
        if not self.logged.has_features:
            return report.refused(report.WITHOUT_FEATURES, estimable=estimable)
        features = self.logged.clicks.lists.features
        if not (np.fmax.reduce(features) > np.fmin.reduce(features)).any():
            return report.refused(report.CONSTANT, estimable=estimable)
        model = self._log_model()
        if model is None:
            return report.refused(f"{report.WITHOUT_MODEL}: {self.done['model'].result['problem']}.")
        from clickprism.auto.checks import choose_ranker

        if self.logged.encoding is not None:
            self.logged.encoding.save(self.path / ENCODING)
        checked = choose_ranker(
            self.logged, model, held=self.held, seed=self.settings.seed, progress=self._progress("choice")
        )
        candidates, used = checked.candidates, checked.used
        if checked.model is not model:
            checked.model.save(self.path / FLATTENED)
        self._save(RANKER, used.make(), checked)
        if checked.use != report.RAW_CLICKS:
            self._save(RAW, candidates.raw.make(), checked)
        self._save(IMITATION, candidates.found[IMITATION].make(), checked)
        lowest = float(used.held_out.min(initial=0.0)) - 1  # documents that were never shown come last
        scores = np.full(self.logged.clicks.lists.documents, lowest)
        scores[checked.evidence.rows] = used.held_out
        content = io.BytesIO()
        np.save(content, scores, allow_pickle=False)
        write_file(self.path / HELD_OUT, content.getvalue())
        return report.chosen(checked, self.logged, scores)

    def _save(self, name: str, model: Model, checked: Checked) -> None:
        model.with_normaliser(checked.normaliser).save(self.path / name)

    def _value(self, choice: Plain) -> Plain:
        """Estimate the clicks of the ranker, each query ranked by a copy that did not learn from it."""
        if choice["refused"]:
            return dict(report.NO_VALUE)
        if sum(stage.seconds for stage in self.done.values()) > self.settings.budget.total_seconds():
            return report.valued(None, "the time budget was used up before this stage; use a larger --budget")
        from clickprism.evaluation.counterfactual.run import counterfactual

        scores = np.load(self.path / HELD_OUT, allow_pickle=False)
        try:
            return report.valued(counterfactual(self.logged, scores, model=self._corrected_by()))
        except DataError as error:
            return report.valued(None, str(error).rstrip("."))

    def _grades(self, choice: Plain) -> Plain:
        """Evaluate the ranker, and one on raw clicks, on the grades of the user; nothing was trained on them."""
        if self.grades is None or choice["refused"]:
            return report.graded(None)
        from clickprism.evaluation.grades import evaluate_on_grades

        lists = self.logged.clicks.lists
        scores = {"the ranker": Model.load(self.path / RANKER).score(lists)}
        if choice["use"] != report.RAW_CLICKS:
            scores["raw clicks"] = Model.load(self.path / RAW).score(lists)
        return report.graded(evaluate_on_grades(self.logged, self.grades, scores))

    def _bundle(self, choice: Plain, value: Plain, diagnosis: Diagnosis) -> Plain:
        if choice["refused"]:
            return {"version": "", "files": {}}
        evidence, model = None, self._corrected_by()
        if model is not None:  # how the service joins the ranker with the clicks on a pair
            from clickprism.serve.scoring.evidence import fit_evidence

            pairs, scores = model.relevance, np.load(self.path / HELD_OUT, allow_pickle=False)
            queries = self.logged.clicks.lists.list_of[pairs.rows]
            evidence = fit_evidence(scores[pairs.rows], pairs.clicks, pairs.weight, queries)
        made, out = self.folder.started, self.path / BUNDLE
        return write_auto_bundle(
            out, self.logged, choice, value, diagnosis, source=self.path, made=made, evidence=evidence
        )


def write_auto_bundle(
    out: Path,
    logged: Logged,
    choice: Plain,
    value: Plain,
    diagnosis: Diagnosis,
    *,
    source: Path,
    made: datetime,
    evidence: Evidence | None = None,
) -> dict[str, Any]:
    """Write the bundle: the ranker, one trained on raw clicks for comparison, its scope, and examples of the log.

    Args:
        out: Folder of the bundle; an older bundle is replaced.
        logged: The log.
        choice: Result of the stage `choice`.
        value: Result of the stage `value`.
        diagnosis: Findings of the log.
        source: Folder with the saved rankers.
        made: Time that the bundle records.
        evidence: How the service joins the ranker with the clicks on a pair.
    """
    from clickprism.serve.bundle.build import write_bundle
    from clickprism.serve.bundle.bundle import Scope
    from clickprism.serve.bundle.examples import examples_of

    lists = logged.clicks.lists
    model = Model.load(source / RANKER)
    naive = Model.load(source / RAW) if choice["use"] != report.RAW_CLICKS else None
    curve = choice["curve"]
    observation = None if curve is None else np.array(curve["values"], dtype=np.float64)
    scores = model.score(lists), None if naive is None else naive.score(lists)
    open_questions = [each.sentence for each in diagnosis.findings.values() if each.verdict == "inconclusive"]
    notes = [report.BIASED if choice["use"] == report.RAW_CLICKS else "", value["sentence"], *open_questions]
    examples = examples_of(logged.clicks, *scores, observation=observation, source="the log", most=EXAMPLES)
    reason = choice["scope"]["reason"].partition(": ")[2]  # the scope itself says the rest
    bundle = write_bundle(
        out,
        model,
        name=choice["chosen"],
        feature_names=logged.feature_names,
        observation=observation,
        data={
            "clicks": "of the log",
            "searches": logged.clicks.sessions,
            "queries": len(lists),
            **({} if choice["use"] == report.RAW_CLICKS else {"ranker": choice["summary"]}),
            **({} if logged.encoding is None else {"encoding": logged.encoding.plain()}),
        },
        notes=[note for note in notes if note],
        scope=Scope(choice["scope"]["rerank_depth"], reason[:1].upper() + reason[1:]),
        evidence=evidence,
        examples=examples.bytes(),
        diagnosis=json.dumps(diagnosis.to_json()).encode(),
        created=made,
        replace=True,
    )
    return {"version": bundle.version, "files": bundle.manifest.files}


def _digest(file: Path | None) -> str:
    """Return 16 digits of the SHA-256 of a file; an empty text without one."""
    if file is None:
        return ""
    try:
        return sha256(file)[:16]
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=file, remedy="Name a file for --grades") from None


def _read(log: Source, columns: ColumnNames) -> Logged:
    """Return the log without empty ranked lists and very deep positions; an infinite feature counts as missing."""
    from clickprism.diagnosis.diagnose import without_empty_lists
    from clickprism.log.open_log import read_log
    from clickprism.log_model.counts import cut
    from clickprism.log_model.model import DEEPEST

    logged = without_empty_lists(read_log(log() if callable(log) else log, **columns))
    deep = int((logged.clicks.positions > DEEPEST).sum())
    if deep:
        logged = cut(logged, DEEPEST)
        logged = replace(logged, account={**logged.account, f"entries below position {DEEPEST}, ignored": deep})
    lists = logged.clicks.lists
    infinite = np.isinf(lists.features)
    if not infinite.any():
        return logged
    lists = lists.with_features(np.where(infinite, np.float32(np.nan), lists.features))
    return replace(logged, clicks=replace(logged.clicks, lists=lists))
