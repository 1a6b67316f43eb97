"""Logs of simulated engines of known quality: does the model of a log rank better than the engine did, and the clicks?

A query has 60 candidate documents. Relevance is linear in 25 features plus noise that no feature explains. The engine's
score mixes true relevance (`QUALITY`) with an irrelevant direction; it shows its top 10, with a little noise each day.
With feedback, it also moves documents up that were clicked on earlier days. Users:

- pbm: observe position k with probability k^-.7
- mix: 40% of the queries are navigational (continue with probability .55, stop after a click with .9), others continue
  with .93
- lazy: as pbm, but half of the users look at nothing

The shown documents of each query are ranked by the logged order (mean position), by click rate, and by the relevance of
the model; the measure is nDCG(exp)@10. The model must not be worse than the logged order by more than .005, nor worse
than the click rate, in any world.

Sparse logs have the size of a web search log with grades: 1,951 queries, 31,564 lists, about 9,340 clicks, no features,
and in a fifth of the queries an engine that changes its mind. Clicks depend on the grade, and on an attraction of the
document that graders do not see, with a standard deviation of `own` in log-odds.

The curve table compares position curves with the true one in worlds of `reproduce.common.worlds`: mean |log error|
at positions 2 to 10 of AllPairs and of the model. Tables go to stderr.
"""

from __future__ import annotations

import sys
from itertools import product
from typing import Final

import numpy as np

from benchmarks.base import Result
from clickprism.click_models.pbm import EYE_TRACKING
from clickprism.data.logged import Logged
from clickprism.evaluation.measures import evaluate
from clickprism.log_model.model import LogModel
from clickprism.types import Bool, Clicks, Float64, Int32, Int64, JudgedLists, Lists
from reproduce.common.worlds import Policy, WorldSettings, make_world

SHOWN: Final = 10
CANDIDATES: Final = 60
FEATURES: Final = 25
DAYS: Final = 8
QUALITY: Final = 0.9
NOISE: Final = 0.005  # of nDCG
OBSERVED: Final = np.arange(1, SHOWN + 1) ** -0.7
SEEDS: Final = 2
SPARSE: Final = {"queries": 1951, "lists": 31_564, "clicks": 9340}
CURVE_SEEDS: Final = 3
CURVES: Final[dict[tuple[Policy, int], float]] = {  # policy, features: best published mean |log error|
    ("several", 32): 0.022,
    ("several", 3): 0.023,
    ("feedback", 32): 0.078,
    ("feedback", 3): 0.060,
}


def run() -> list[Result]:
    """Return nDCG in the worst world for each number of searches, and errors of curves."""
    return [*_rankings(), *_sparse(), *_curves()]


def _rankings() -> list[Result]:
    print(
        "| searches | users | features | feedback | logged order | click rate | model | curve error |", file=sys.stderr
    )
    print(f"|{'---|' * 8}", file=sys.stderr)
    results = []
    for searches in (1, 10, 100):
        found = []
        for users, features, feedback in product(("pbm", "mix", "lazy"), (0, FEATURES), (False, True)):
            seeds = [_ndcg(seed, users, searches, features=features, feedback=feedback) for seed in range(SEEDS)]
            logged, rate, ours, error = np.mean(seeds, axis=0).tolist()
            found.append((logged, rate, ours))
            print(
                f"| {searches} | {users} | {features} | {'yes' if feedback else 'no'} | {logged:.3f} | {rate:.3f} | "
                f"{ours:.3f} | {error:.3f} |",
                file=sys.stderr,
                flush=True,
            )
        for title, peers in (
            ("logged order - .005", [(ours, logged - NOISE) for logged, _, ours in found]),
            ("click rate", [(ours, rate) for _, rate, ours in found]),
        ):
            ours, peer = min(peers, key=lambda pair: pair[0] - pair[1])
            name = f"good engine, {searches} searches a query: {title}"
            results.append(Result(name, ours, peer, 1.0, "nDCG(exp)@10, worst of 12 worlds"))
    return results


def _ndcg(seed: int, users: str, searches: int, *, features: int, feedback: bool) -> list[float]:
    """Return nDCG of the logged order, of click rates and of the model; and the error of its curve, if that exists."""
    return _measured(*engine_log(seed, users, searches, features=features, feedback=feedback), users)


def _measured(judged: JudgedLists, logged: Logged, users: str) -> list[float]:
    clicks, size = logged.clicks, judged.lists.documents
    shown = np.bincount(clicks.rows, weights=clicks.list_impressions, minlength=size)
    clicked = np.bincount(clicks.rows, weights=clicks.clicks, minlength=size)
    position = np.bincount(clicks.rows, weights=clicks.positions, minlength=size) / shown
    model = LogModel.fit(logged)
    value = model.relevance.by_document(size, cold=0.0)
    scores = (-position, clicked / shown - 1e-6 * position, value)  # equal click rates are ranked as logged
    error = float(np.abs(np.log(model.curve.values / OBSERVED))[1:].mean()) if users != "mix" else float("nan")
    return [*(evaluate(judged, each, "nDCG(exp)@10").mean("nDCG(exp)@10") for each in scores), error]


def engine_log(
    seed: int, users: str, searches: int, *, features: int, feedback: bool, quality: float = QUALITY
) -> tuple[JudgedLists, Logged]:
    """Return the documents that an engine showed, with grades, and its log.

    Args:
        seed: Random seed.
        users: "pbm", "mix" or "lazy".
        searches: Scale of the number of searches of a query.
        features: Number of features that the log has: 0, or all.
        feedback: Whether the engine moves documents up that were clicked.
        quality: Correlation of the engine's score with relevance.
    """
    rng, queries = np.random.default_rng(seed), 240 if searches < 50 else 120
    x = rng.normal(size=(queries, CANDIDATES, FEATURES))
    weights = rng.normal(size=FEATURES) * (rng.random(FEATURES) < 0.5)
    utility = x @ weights
    utility = utility / utility.std() + rng.normal(0, 0.6, utility.shape)
    other = rng.normal(size=FEATURES)
    irrelevant = x @ (other - weights * (other @ weights) / (weights @ weights))
    engine = quality * utility / utility.std() + np.sqrt(1 - quality**2) * irrelevant / irrelevant.std()
    attraction = 1 / (1 + np.exp(2.6 - 1.6 * utility))
    orders, clicked, days = [], [], []
    for query in range(queries):
        count = min(max(1, int(searches * (rng.pareto(1.5) + 0.2))), searches * 20)
        navigational = rng.random() < 0.4
        clicks, shown = np.zeros(CANDIDATES), np.zeros(CANDIDATES)
        for day, number in enumerate(np.bincount(rng.integers(DAYS, size=count), minlength=DAYS).tolist()):
            reaction = 2 * (clicks + 0.3) / (shown + 2) if feedback else 0.0
            order = np.argsort(-(engine[query] + rng.normal(0, 0.25, CANDIDATES) + reaction))[:SHOWN]
            got = _clicks(rng, np.tile(attraction[query, order], (number, 1)), users, navigational)
            clicks[order] += got.sum(axis=0)
            shown[order] += number
            orders.append(np.tile(query * CANDIDATES + order, (number, 1)))
            clicked.append(got)
            days.append(np.full(number, day))
    shown_rows, row = np.unique(np.concatenate(orders), return_inverse=True)
    lengths = np.bincount(shown_rows // CANDIDATES, minlength=queries)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    matrix = x.reshape(-1, FEATURES)[shown_rows, :features].astype(np.float32)
    lists = Lists(matrix, offsets, np.array([f"{query}" for query in range(queries)]))
    grades: Int32 = np.digitize(utility.reshape(-1)[shown_rows], [0.8, 1.4, 1.9, 2.4]).astype(np.int32)
    sessions = row.size // SHOWN
    log = Clicks(
        lists,
        np.arange(0, row.size + 1, SHOWN),
        row.reshape(-1).astype(np.int64),
        np.tile(np.arange(1, SHOWN + 1, dtype=np.int32), sessions),
        np.concatenate(clicked).reshape(-1).astype(np.int64),
        np.ones(sessions, dtype=np.int64),
    )
    return JudgedLists(lists, grades), Logged(log, np.concatenate(days).astype(np.int64))


def _sparse() -> list[Result]:
    print("| users | own attraction | logged order | click rate | model |", file=sys.stderr)
    print(f"|{'---|' * 5}", file=sys.stderr)
    found = []
    for users, own in product(("pbm", "mix", "lazy"), (0.0, 0.5, 0.9)):
        logged, rate, ours, _ = _measured(*sparse_log(0, users, own), "mix")
        found.append((ours, max(logged - NOISE, rate)))
        print(f"| {users} | {own} | {logged:.3f} | {rate:.3f} | {ours:.3f} |", file=sys.stderr, flush=True)
    ours, peer = min(found, key=lambda pair: pair[0] - pair[1])
    title = "sparse log of a good engine: logged order - .005 and click rate"
    return [Result(title, ours, peer, 1.0, "nDCG(exp)@10, worst of 9 worlds")]


def sparse_log(seed: int, users: str, own: float, quality: float = 0.8) -> tuple[JudgedLists, Logged]:
    """Return a sparse log of an engine, with grades.

    Args:
        seed: Random seed.
        users: "pbm", "mix" or "lazy".
        own: Standard deviation of the part of attraction that graders do not see, in log-odds.
        quality: Correlation of the engine's score with relevance within a query.
    """
    rng, (queries, lists, target) = np.random.default_rng(seed), SPARSE.values()
    level = rng.normal(0, 0.6, (queries, 1))
    utility = rng.normal(size=(queries, 14)) + level
    engine = quality * utility + np.sqrt(1 - quality**2) * rng.normal(size=utility.shape)
    attraction = 1 / (1 + np.exp(1.5 - 0.7 * (utility - level) - own * rng.normal(size=utility.shape)))
    navigational, changing = rng.random(queries) < 0.4, rng.random(queries) < 0.2
    weight = rng.pareto(0.9, queries) + 0.3
    low, high = 0.0, 1e4  # scale of the frequencies that gives this number of lists
    for _ in range(60):
        middle = (low + high) / 2
        count = np.clip(weight * middle, 1, 400).astype(np.int64)
        low, high = (middle, high) if count.sum() < lists else (low, middle)
    query = np.repeat(np.arange(queries), count)
    day = rng.integers(20, size=len(query))
    moved = rng.normal(0, 0.15, (20, *utility.shape))[day, query] * changing[query, None]
    order = np.argsort(-(engine[query] + moved), axis=1)[:, :SHOWN]
    attracted = np.take_along_axis(attraction[query], order, axis=1)
    scale = 1.0
    for _ in range(4):  # scale the attraction to the number of clicks
        drawn = np.zeros(order.shape, dtype=np.bool_)
        for kind in (False, True):
            at = navigational[query] == kind
            drawn[at] = _clicks(rng, np.minimum(scale * attracted[at], 0.95), users, kind)
        scale = min(scale * target / drawn.sum(), 4.0)
    rows, row = np.unique(order + 14 * query[:, None], return_inverse=True)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows // 14, minlength=queries))]).astype(np.int64)
    names = np.array([f"{number}" for number in range(queries)])
    shown = Lists(np.zeros((len(rows), 0), dtype=np.float32), offsets, names)
    log = Clicks(
        shown,
        np.arange(0, row.size + 1, SHOWN),
        row.reshape(-1).astype(np.int64),
        np.tile(np.arange(1, SHOWN + 1, dtype=np.int32), len(query)),
        drawn.reshape(-1).astype(np.int64),
        np.ones(len(query), dtype=np.int64),
    )
    grades = np.digitize(utility.reshape(-1)[rows], [-0.8, -0.1, 0.6, 1.2, 1.9]).astype(np.int32)
    return JudgedLists(shown, grades), Logged(log, day.astype(np.int64))


def _clicks(rng: np.random.Generator, attraction: Float64, users: str, navigational: bool) -> Bool:
    """Return which documents are clicked, [searches, positions]."""
    attracted = rng.random(attraction.shape) < attraction
    if users in ("pbm", "lazy"):
        looks = rng.random(len(attraction)) < (1.0 if users == "pbm" else 0.5)
        return attracted & looks[:, None] & (rng.random(attraction.shape) < OBSERVED)
    go_on, stop = (0.55, 0.9) if navigational else (0.93, 0.0)
    going = rng.random(attraction.shape) < go_on
    going[:, 0] = True
    stops = attracted & (rng.random(attraction.shape) < stop)
    before: Int64 = np.cumsum(stops, axis=1) - stops
    return np.asarray(attracted & np.logical_and.accumulate(going, axis=1) & (before == 0))


def _curves() -> list[Result]:
    truth = np.log(np.array(EYE_TRACKING)[:SHOWN] / EYE_TRACKING[0])[1:]
    print("| policy | features | allpairs | model | identified by features only |", file=sys.stderr)
    print(f"|{'---|' * 5}", file=sys.stderr)
    results = []
    for (policy, features), best in [*CURVES.items(), (("single", 32), 0.0)]:
        errors, flagged = [], 0
        for seed in range(CURVE_SEEDS):
            settings = WorldSettings(policy=policy, features=features, sessions=60_000, seed=seed)
            model = LogModel.fit(make_world(settings).logged)
            flagged += not model.linkage.linked
            agreement = model.references.get("allpairs")
            curves = [None if agreement is None else agreement.curve.values, model.curve.values]
            errors.append(
                [float("nan") if each is None else np.abs(np.log(each[1:SHOWN]) - truth).mean() for each in curves]
            )
        harvested, ours = np.mean(errors, axis=0).tolist()
        print(
            f"| {policy} | {features} | {harvested:.3f} | {ours:.3f} | {flagged} of {CURVE_SEEDS} |",
            file=sys.stderr,
            flush=True,
        )
        if policy == "single":
            title = "curve: one ranker, flagged as identified by features only"
            results.append(Result(title, flagged, CURVE_SEEDS, 1.0, "worlds"))
        else:
            limit = 0.01 + (max(best, harvested) if policy == "several" else best)  # AllPairs is biased by feedback
            title = f"curve: {policy}, {features} features: best + .01"
            results.append(Result(title, ours, limit, 1.0, "mean |log error|", higher_is_better=False))
    return results
