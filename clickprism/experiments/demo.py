"""The demo: from the raw log of a simulated search engine to a diagnosis, a table of methods, and a served ranker.

Everything is learned from the log alone, as from a real one. The truth is used at the end, to measure.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import Final, NamedTuple, TypeAlias, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from clickprism._util.files import create_folder, write_file
from clickprism._util.tables import Table, as_text, by_position, to_json, to_plain
from clickprism.auto.run import BUNDLE, LOG_MODEL, RANKER, AutoSettings, auto
from clickprism.data.logged import Logged
from clickprism.data.normalise import fit as fit_normaliser
from clickprism.debias import method
from clickprism.diagnosis.finding import Diagnosis
from clickprism.diagnosis.position import click_rates
from clickprism.errors import DataError
from clickprism.evaluation import plots
from clickprism.evaluation.compare import Comparison, compare
from clickprism.evaluation.measures import evaluate
from clickprism.evaluation.report import Beside, write_report
from clickprism.evaluation.significance import intervals
from clickprism.log.ingest import ingest
from clickprism.log.open_log import read_logged
from clickprism.log.settings import LogSettings, WindowSettings
from clickprism.log.store import LogStore
from clickprism.log_model.model import LogModel
from clickprism.model import Model
from clickprism.rankers.attention import Attention
from clickprism.rankers.base import NetworkRanker
from clickprism.rankers.linear import Linear
from clickprism.simulation.clicks import ideal_clicks
from clickprism.simulation.demo_log import FEATURES, POPULARITY, SHOWN, DemoLog, write_demo_log
from clickprism.simulation.raw_settings import DemoSettings
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.training.split import split_queries
from clickprism.types import Float64, Int64, JudgedLists, Lists

Say: TypeAlias = Callable[[str], None]
Interval: TypeAlias = tuple[float, float, float]  # a value, and the ends of its 95% interval

TITLE: Final = "clickprism: from a biased click log to a ranker"
MEASURE: Final = "nDCG(exp)@10"
WIDTH: Final = 110  # width of the text for a terminal
MARKER, RAW, LOG, AUTO, PAIRS, STORE = "demo.json", "raw", "log", "auto", "relevance", "store"
METHODS: Final[Mapping[str, tuple[str, NetworkRanker]]] = {
    **{name: (name, Linear()) for name in ("click", "dla", "lbd", "inforank")},
    "inforank + attention": ("inforank", Attention()),
}
LABELS, OURS, CLICK, LOGGED = "labels (ceiling)", "auto", "click", "logged order"
RATE, ROBUST, APPROXIMATED, POSTERIOR = "click rate", "doubly robust (Eq. 4)", "doubly robust (approx.)", "log model"
TRAFFIC: Final = {"head": 0.1, "middle": 0.3, "tail": 0.6}  # shares of the queries, the most frequent first
BIASES: Final = {
    "position": "Position bias",
    "coupling": "Document-dependent observation",
    "popularity": "Popularity bias",
    "trust": "Trust bias",
    "interaction": "Clicks depend on clicks above",
    "feedback": "Engine reacts to clicks",
}
SIMULATED: Final = ("position", "coupling", "popularity")
HELD_OUT: Final = 0.2  # share of the queries whose clicks choose the epoch
STORED: Final = 300  # test queries in the store
JOINT: Final = (
    "Methods that learn observation and relevance together can take the order of a good engine for observation."
)


class Scores(NamedTuple):
    """Scores of all candidates of new queries (None if a method has none), and of the queries of the log."""

    new: Float64 | None
    own: Float64


@final
@dataclass(frozen=True)
class Row:
    """nDCG@10 of a method, on new queries, and on queries of the log by traffic.

    Attributes:
        method: Its name.
        new: On new queries; None for an estimate that exists for pairs of the log only.
        closed: Share of the gap between the logged order and labels that it closes on new queries.
        verdict: "better" or "worse" than raw clicks on new queries, if that is significant.
        traffic: On the head, middle and tail queries of the log.
    """

    method: str
    new: Interval | None
    closed: Interval | None
    verdict: str
    traffic: dict[str, float]

    def cells(self) -> list[str]:
        """Return the row as text."""
        mark = {"better": " ▲", "worse": " ▼"}.get(self.verdict, "")
        new = ["-", "-"] if self.new is None else [_short(self.new[0]) + mark, " to ".join(map(_short, self.new[1:]))]
        closed = "-" if self.closed is None else "{:.0%} ({:.0%} to {:.0%})".format(*self.closed)
        return [self.method, *new, closed, *map(_short, self.traffic.values())]


@final
@dataclass(frozen=True, kw_only=True)
class Demo:
    """The result of the demo.

    Attributes:
        verdict: What was found, in sentences.
        biases: For each bias: the verdict of the diagnosis, its size, and its size in the simulation.
        curves: By position, relative to the first: estimated and true observation, and the click rate.
        rows: The methods.
        notes: How to read the table.
        report: The page; the folder has log/, bundle/ and store/, too.
        commands: What to try next.
    """

    verdict: tuple[str, ...]
    biases: Mapping[str, tuple[str, str, str]]
    curves: Mapping[str, tuple[float, ...]]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    report: Path
    commands: tuple[str, ...]

    def tables(self) -> list[Table]:
        """Return the diagnosis and the methods."""
        biases = [[BIASES[name], *cells] for name, cells in self.biases.items()]
        header = ["method", "new queries", "95% interval", "gap closed", *TRAFFIC]
        methods = Table("nDCG@10 of the methods", header, [row.cells() for row in self.rows])
        return [Table("What the log shows", ["bias", "found", "size", "truth"], biases), methods]

    def text(self) -> str:
        """Return what was found, the tables, how to read them, and what to try next, for a terminal."""
        biases, methods = self.tables()
        observation = by_position("Observation by position", self.curves)
        found = [fill(f"- {each}".replace("`", ""), WIDTH, subsequent_indent="  ") for each in self.verdict]
        notes = [fill(each, WIDTH) for each in self.notes]
        tables = as_text([biases, observation, methods])
        parts = [[TITLE], found, [tables], notes, ["Try next", *self.commands], [f"Report: {self.report}"]]
        return "\n\n".join("\n".join(lines) for lines in parts)


def run_demo(settings: DemoSettings, *, out: Path, program: str = "clickprism", say: Say = lambda _: None) -> Demo:
    """Simulate a raw log, ingest it, diagnose it, compare methods on it, and write a ranker to serve and a report.

    Args:
        settings: Size of the log, and the seed.
        out: Folder of the demo; one that has anything else in it is refused.
        program: How the commands to try next begin.
        say: Called with what is being done.
    """
    create_folder(out)
    if any(out.iterdir()) and not (out / MARKER).is_file():
        raise DataError("is not empty, and not the folder of a demo", file=out, remedy="Choose a new --out")
    for name in (RAW, LOG, AUTO, PAIRS, BUNDLE, STORE):
        shutil.rmtree(out / name, ignore_errors=True)
    write_file(out / MARKER, to_json({"settings": settings}) + "\n")
    say("simulating the users of a search engine")
    create_folder(out / RAW)
    truth = write_demo_log(out / RAW, settings)
    say("ingesting the raw log")
    ingest([out / RAW], out / LOG, settings=LogSettings().with_part("windows", WindowSettings(k=0)))
    seed = AutoSettings(seed=settings.seed)
    made = auto(out / LOG, out=out / AUTO, settings=seed, name="the demo's log", progress=lambda _, text: say(text))
    logged, ranker = read_logged(out / LOG), Model.load(out / AUTO / RANKER)
    scores = {OURS: _scores(ranker, truth)} | train_methods(logged, truth, seed=settings.seed, say=say)
    say("estimating the relevance of each pair")
    scores |= estimate_pairs(out, logged, truth, ranker)
    say("repeating it with users who behave differently")
    other = other_users(settings, out, say=say)
    say("writing the report")
    _serve(out, truth)
    rows, comparison = compare_scores(scores, truth)
    biases, rates = _biases(made.diagnosis, truth), click_rates(logged)
    curves = {"truth": truth.observation, "click rate": rates / rates[0]}
    curves |= {} if made.diagnosis.curve is None else {"estimated": made.diagnosis.curve.values}
    demo = Demo(
        verdict=tuple(_verdict(biases, rows)),
        biases=biases,
        curves={name: tuple(map(float, values)) for name, values in curves.items()},
        rows=rows,
        notes=tuple(_notes(settings, truth, rows, other)),
        report=out / "report.html",
        commands=tuple(next_commands(out, program=program)),
    )
    _write_report(demo, settings, made.diagnosis, comparison)
    write_file(out / MARKER, to_json({"settings": settings, "result": demo}) + "\n")
    return demo


def other_users(settings: DemoSettings, out: Path, *, say: Say) -> dict[str, float]:
    """Return nDCG@10 on new queries of `auto` and of raw clicks, from a log of users who browse in another form."""
    with tempfile.TemporaryDirectory(dir=out) as name:
        raw, log, run = (Path(name) / part for part in (RAW, LOG, AUTO))
        create_folder(raw)
        truth = write_demo_log(raw, settings, browsing=True)
        ingest([raw], log, settings=LogSettings().with_part("windows", WindowSettings(k=0)))
        auto(
            log,
            out=run,
            settings=AutoSettings(seed=settings.seed),
            name="other users",
            progress=lambda _, text: say(text),
        )
        scores = train_methods(read_logged(log), truth, seed=settings.seed, say=say, methods=(CLICK,))
        scores[OURS] = _scores(Model.load(run / RANKER), truth)
    new = {name: scores[name].new for name in (OURS, CLICK)}
    return {name: evaluate(truth.test, each, MEASURE).mean(MEASURE) for name, each in new.items() if each is not None}


def train_methods(
    logged: Logged, truth: DemoLog, *, seed: int, say: Say, methods: Sequence[str] = tuple(METHODS)
) -> dict[str, Scores]:
    """Train a ranker by each method on the clicks of the log, and one on the true grades.

    The clicks of some queries are held out: their likelihood chooses the epoch, without labels.
    """
    normaliser = fit_normaliser("standard", logged.clicks.lists)
    clicks = replace(logged.clicks, lists=normaliser(logged.clicks.lists))
    part = split_queries(clicks.lists.list_of[clicks.rows[clicks.offsets[:-1]]], (HELD_OUT,), seed=seed)
    loop = FitSettings(epochs=40, patience=5, threads=1, seed=seed)
    scores: dict[str, Scores] = {}
    for label in methods:
        name, ranker = METHODS[label]
        say(f"training {label}")
        rule = method(name)
        own, held_out = (clicks.take(np.flatnonzero(part == which)) for which in (0, 1))
        if not rule.needs_patterns:
            own, held_out = own.merge(), held_out.merge()
        fitted = fit(own, method=rule, ranker=ranker, settings=loop, validation=held_out, show=False)
        scores[label] = _scores(fitted.model.with_normaliser(normaliser), truth)
    judged = ideal_clicks(JudgedLists(normaliser(truth.train.lists), truth.train.grades))
    fitted = fit(judged, method=method("labels"), ranker=Linear(), settings=replace(loop, epochs=100), show=False)
    return scores | {LABELS: _scores(fitted.model.with_normaliser(normaliser), truth)}


def estimate_pairs(out: Path, logged: Logged, truth: DemoLog, ranker: Model) -> dict[str, Scores]:
    """Estimate the relevance of each pair of the log by its own clicks; the ranker imputes what they do not say."""
    from clickprism.examination.examine import fit_current
    from clickprism.examination.model import chosen_model
    from clickprism.examination.settings import ExaminationSettings
    from clickprism.relevance.approximate_log import apply_log, fit_log
    from clickprism.relevance.approximation import Approximation
    from clickprism.relevance.estimate import estimate_relevance
    from clickprism.relevance.estimators import EstimateSettings
    from clickprism.relevance.imputation import FeatureImputation
    from clickprism.relevance.pair_files import write_rows
    from clickprism.relevance.pairs import read_first_slot

    lists, store, model = truth.train.lists, LogStore.open(out / LOG), LogModel.load(out / AUTO / LOG_MODEL)
    ids = _pair_ids(lists)
    imputed = FeatureImputation.fit(ranker, lists, read_first_slot(store)).impute(*ids.values())
    create_folder(out / PAIRS)
    known, parameters, robust, network, approximated = (
        out / PAIRS / name
        for name in ("imputed.parquet", "parameters.json", "robust.parquet", "network", "approximated.parquet")
    )
    write_rows(known, ids | {"imputation": imputed})
    model.parameters.write(parameters)
    with store.write() as writer:
        engine = writer.engine
        fit_current(store, engine, settings=ExaminationSettings(clicks="others"))
        examiner = chosen_model(store.folder / "models", None)
        eq4 = EstimateSettings(estimator="doubly_robust")
        estimate_relevance(store, engine, robust, eq4, parameters=parameters, imputation=known)
        fit_log(store, engine, known, network, examiner=examiner)
        apply_log(store, engine, Approximation.load(network), approximated, imputation=known, examiner=examiner)
    clicks, rows = logged.clicks, FeatureImputation.rows(lists, *_pair_ids(logged.clicks.lists).values())
    shown, clicked, depth = (
        np.bincount(rows[clicks.rows], weights=counts, minlength=lists.documents)
        for counts in (clicks.list_impressions, clicks.clicks, clicks.list_impressions * clicks.positions)
    )
    posterior = imputed.copy()
    posterior[rows[model.relevance.rows]] = model.relevance.value
    often, never = np.maximum(shown, 1), shown == 0
    return {
        LOGGED: Scores(truth.engine, np.where(never, -np.inf, -depth / often).clip(min=-1e9)),
        RATE: Scores(None, np.where(never, -1.0, clicked / often)),
        ROBUST: Scores(None, _estimates(robust, lists)),
        APPROXIMATED: Scores(None, _estimates(approximated, lists)),
        POSTERIOR: Scores(None, posterior),
    }


def compare_scores(scores: Mapping[str, Scores], truth: DemoLog) -> tuple[tuple[Row, ...], Comparison]:
    """Measure all methods on new queries, and on the queries of the log by their traffic."""
    found = {name: evaluate(truth.test, each.new, MEASURE) for name, each in scores.items() if each.new is not None}
    new = dict(sorted(found.items(), key=lambda item: -item[1].mean(MEASURE)))
    own = {name: evaluate(truth.train, each.own, MEASURE)[MEASURE] for name, each in scores.items()}
    comparison = compare(new, baseline=CLICK, reference=[LABELS])
    measured = {row.method: row for row in comparison.rows}
    values = {name: each[MEASURE] for name, each in new.items()}
    part, rows = traffic_of(truth.searches), []
    for name in (*new, *sorted(own.keys() - new.keys(), key=lambda name: -float(np.nanmean(own[name])))):
        traffic = {each: float(np.nanmean(own[name][part == place])) for place, each in enumerate(TRAFFIC)}
        row = measured.get(name)
        if row is None:
            rows.append(Row(name, None, None, "", traffic))
        else:
            closed = gap_closed(values[name], values[LOGGED], values[LABELS])
            rows.append(Row(name, (row.mean, row.low, row.high), closed, row.verdict, traffic))
    return tuple(rows), comparison


def gap_closed(values: Float64, low: Float64, high: Float64) -> Interval:
    """Return the share of the gap between two rankings that a third one closes, with its 95% interval.

    The interval is that of the mean of v - low - share (high - low) over queries, divided by the mean gap.

    >>> gap_closed(np.array([0.4, 0.6]), np.array([0.2, 0.4]), np.array([0.6, 0.8]))[0]
    0.5
    """
    values, low, high = (each[~np.isnan(values + low + high)] for each in (values, low, high))
    gap = float((high - low).mean())
    share = float((values - low).mean()) / gap
    ends = [float(np.nan_to_num(end[0])) / gap for end in intervals((values - low - share * (high - low))[:, None])]
    return round(share, 12), share + min(ends), share + max(ends)


def traffic_of(searches: Int64) -> Int64:
    """Return whether each query is in the head (0), the middle (1) or the tail (2), by its searches.

    >>> traffic_of(np.array([1, 9, 3, 2, 1, 1, 5, 1, 1, 4])).tolist()
    [2, 0, 1, 2, 2, 2, 1, 2, 2, 1]
    """
    rank = np.argsort(np.argsort(-searches, kind="stable"), kind="stable")
    edges = np.round(np.cumsum(list(TRAFFIC.values()))[:-1] * len(searches))
    return np.asarray(np.searchsorted(edges, rank, side="right"), dtype=np.int64)


def next_commands(out: Path, *, program: str = "clickprism") -> list[str]:
    """Return commands to try after the demo."""
    folder = shlex.quote(str(out))
    return [
        f"{program} serve {folder}/{BUNDLE} --store {folder}/{STORE}",
        f"{program} diagnose {folder}/{LOG} --out {folder}/diagnosis",
        f"{program} relevance estimate {folder}/{LOG} --out {folder}/estimates.parquet",
        f"{program} auto {folder}/{LOG} --out {folder}/again",
    ]


def _scores(model: Model, truth: DemoLog) -> Scores:
    return Scores(model.score(truth.test.lists), model.score(truth.train.lists))


def _pair_ids(lists: Lists) -> dict[str, np.ndarray]:
    return {"query_id": lists.query_ids[lists.list_of], "document_id": np.asarray(lists.document_ids)}


def _estimates(file: Path, lists: Lists) -> Float64:
    """Return the estimates in a file for all candidates, [documents]; -1 for those that it does not have."""
    from clickprism.relevance.imputation import FeatureImputation

    table = pq.read_table(file)
    ids = [np.array(table[name].to_pylist()) for name in ("query_id", "document_id")]
    values = np.full(lists.documents, -1.0)
    values[FeatureImputation.rows(lists, ids[0], ids[1])] = table["estimate"].to_numpy()
    return values


def _biases(diagnosis: Diagnosis, truth: DemoLog) -> dict[str, tuple[str, str, str]]:
    """Return for each bias the verdict of the diagnosis, its estimated size, and its size in the simulation."""
    sizes, curve = dict.fromkeys(BIASES, ""), diagnosis.curve
    if curve is not None:
        sizes["position"] = f"{curve.values[-1]:.0%} ({curve.lower[-1]:.0%} to {curve.upper[-1]:.0%})"
    for name in ("coupling", "popularity"):
        estimate = diagnosis[name].estimate
        sizes[name] = "" if estimate is None else f"{estimate:.0%}"
    simulated = {"position": truth.observation[-1], "coupling": truth.coupling, "popularity": POPULARITY}
    texts = {name: f"{simulated[name]:.0%}" if name in simulated else "none" for name in BIASES}
    return {name: (diagnosis[name].word, sizes[name], texts[name]) for name in BIASES}


def _verdict(biases: Mapping[str, tuple[str, str, str]], rows: Sequence[Row]) -> list[str]:
    """Return the results in three sentences: the diagnosis, `auto` on new queries, and estimates of logged pairs."""
    found = [name for name, cells in biases.items() if cells[0].endswith("present")]
    missed, wrong = [name for name in SIMULATED if name not in found], [name for name in found if name not in SIMULATED]
    said = f"The diagnosis finds {_listed(found)}"
    said += f"; it misses {_listed(missed)}" if missed else "" if wrong else ", as simulated"
    said += f"; not simulated: {_listed(wrong)}" if wrong else ""
    _, size, truth = biases["position"]
    if size:
        said += f". Position {SHOWN} is observed {size} as often as position 1; the truth is {truth}"
    of = {row.method: row for row in rows}
    new = {row.method: _short(row.new[0]) for row in rows if row.new is not None}
    closed = {row.method: f"{row.closed[0]:.0%}" for row in rows if row.closed is not None}
    on_log = {name: " / ".join(map(_short, of[name].traffic.values())) for name in (POSTERIOR, OURS, RATE)}
    return [
        f"{said}.",
        f"`auto` learns from clicks alone and reaches nDCG@10 {new[OURS]} on queries that are not in the log: "
        f"{closed[OURS]} of the way from the logged order ({new[LOGGED]}) to a ranker trained on true grades "
        f"({new[LABELS]}). A ranker trained on raw clicks gets {closed[CLICK]} of the way ({new[CLICK]}).",
        "On the queries of the log, the model of the log also uses the clicks of each result. Ranked by it, "
        f"{' / '.join(TRAFFIC)} queries reach {on_log[POSTERIOR]}; by this ranker {on_log[OURS]}, by click rates "
        f"{on_log[RATE]}.",
    ]


def _notes(settings: DemoSettings, truth: DemoLog, rows: Sequence[Row], other: Mapping[str, float]) -> list[str]:
    """Return how to read the table, and where its numbers do not hold."""
    part = traffic_of(truth.searches)
    shares = [truth.searches[part == place].sum() / settings.searches for place in range(len(TRAFFIC))]
    texts = [f"{name} {of:.0%} ({share:.0%})" for (name, of), share in zip(TRAFFIC.items(), shares, strict=True)]
    worse = [row.method for row in rows if row.verdict == "worse" and row.method != LOGGED]
    return [
        "This world is kind to auto: its users observe as the model of the log assumes, and relevance is linear in the "
        "features but for noise. With users who behave differently on the same engine (half stop after a click, "
        f"half after three results), auto reaches {_short(other[OURS])}, raw clicks {_short(other[CLICK])}.",
        f"New queries: {settings.test_queries:,} queries that are not in the log, with all {settings.candidates} "
        "candidates. Gap closed: 0% is the logged order, 100% a ranker trained on true grades. ▲ ▼: better or worse "
        "than click, p < .05.",
        f"Head, middle, tail: {', '.join(texts)} of the {settings.queries:,} queries (of the {settings.searches:,} "
        "searches) of the log.",
        "Size of a bias: how often the last position is observed, relative to the first; by how much the curve differs "
        "between documents (standard deviation); by how much it is flatter for the most clicked ones.",
        "Rankers are linear in the features unless stated otherwise, and held-out clicks choose the epoch. The last "
        "rows estimate each pair from its own clicks, so they have no value on new queries.",
        *([f"Worse than raw clicks here: {', '.join(worse)}. {JOINT}"] if worse else []),
    ]


def _write_report(demo: Demo, settings: DemoSettings, diagnosis: Diagnosis, comparison: Comparison) -> None:
    """Write the page: verdict, one figure, what to do; the tables are folded."""
    lines, ends, curve = {}, {}, diagnosis.curve
    if curve is not None:
        lines, ends = {"estimated from clicks": curve.values}, {"estimated from clicks": (curve.lower, curve.upper)}
    lines |= {"click rate": np.array(demo.curves["click rate"])}
    drawn = plots.observation_curve(np.array(demo.curves["truth"]), lines, intervals=ends)
    observed = plots.svg(
        drawn, title="How often each position is observed: the truth, and the estimate from clicks alone"
    )
    write_file(demo.report.parent / "observation.svg", observed)
    caption = f"nDCG@10 on {settings.test_queries:,} queries that are not in the log, with 95% intervals"
    biases, methods = demo.tables()
    write_report(
        demo.report,
        title=TITLE,
        summary="\n\n".join(demo.verdict).replace("`", ""),
        comparison=[],
        figures={caption: plots.svg(plots.method_dots(comparison), title=caption)},
        folded={
            f"{biases.caption}: biases and the position curve": [Beside(observed, biases._replace(caption=""))],
            f"{methods.caption}, also on head, middle and tail queries": [methods._replace(caption="")],
            "How to read the numbers": demo.notes,
        },
        settings=to_plain(settings),
        next_commands=demo.commands,
    )


def _serve(out: Path, truth: DemoLog) -> None:
    """Copy the bundle of `auto`, and publish the features of the log's documents and of some test queries."""
    from clickprism.serve.settings import PublishSettings
    from clickprism.serve.store.publish import publish

    shutil.copytree(out / AUTO / BUNDLE, out / BUNDLE)
    parts = truth.train.lists, truth.test.lists.take(range(min(STORED, len(truth.test))))
    tables = [pa.table(_pair_ids(part) | dict(zip(FEATURES, part.features.T, strict=True))) for part in parts]
    with tempfile.TemporaryDirectory(dir=out) as folder:
        pq.write_table(pa.concat_tables(tables), Path(folder) / "features.parquet")
        publish(out / STORE, PublishSettings(features=Path(folder) / "features.parquet"))


def _listed(names: Sequence[str]) -> str:
    """Return biases as in a sentence.

    >>> _listed(["trust", "position"]), _listed([])
    ('trust bias and position bias', 'no bias')
    """
    words = [BIASES[name][:1].lower() + BIASES[name][1:] for name in names] or ["no bias"]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _short(value: float) -> str:
    """Return a number with three digits after the point, without a leading zero.

    >>> _short(0.8512)
    '.851'
    """
    return f"{value:.3f}".removeprefix("0")
