"""Real logs: does the model predict held-out clicks, rank as graders do, and agree with random order?

Needs the folders `yandex-clicks`, `trec2014` and `expedia` of `../shared/data`; those that are missing are skipped.

- Yandex: a share of the sessions is for training. AUC within position is the mean over positions, weighted by clicks,
  of the AUC of clicked against unclicked held-out impressions, by the estimate of the pair. Pairs without training
  impressions get the value of cold pairs. The table also has the AUC by the predicted click rate of the pair at the
  position, which differs where the curves of queries do.
- TREC 2014: nDCG(exp)@10 of ranking the documents of each graded query. Differences under .013 are noise.
- Expedia: the curve of the searches in random order, and that of the model of all searches.

Tables go to stderr.
"""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.base import Result
from clickprism.data.logged import Logged
from clickprism.data.sessions import read_sessions
from clickprism.evaluation.measures import evaluate
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.types import Clicks, Float64, Int64, JudgedLists, Lists

DATA: Final = Path(__file__).parents[2] / "shared" / "data"
SPLITS: Final = 4
SHARES: Final = {0.05: 0.681, 0.2: 0.690, 0.5: 0.691}  # training share, least AUC
CONSTANTS: Final = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0)  # that clicks over expected clicks are smoothed by
NOISE: Final = 0.013  # of nDCG on TREC 2014
TIES: Final = 10  # random orders of documents with equal values


def run() -> list[Result]:
    """Return the results of every log that is there."""
    results = []
    for name, measure in (("yandex-clicks", _yandex), ("trec2014", _trec), ("expedia", _expedia)):
        if (DATA / name).is_dir():
            results += measure(DATA / name)
        else:
            print(f"real_logs: skipped {name}, no folder {DATA / name}", file=sys.stderr)
    return results


def _yandex(folder: Path) -> list[Result]:
    log = read_sessions(folder / "sessions.tsv.gz").clicks
    print("| training share | click rate | best smoothed COEC | model | model, at the position |", file=sys.stderr)
    print(f"|{'---|' * 5}", file=sys.stderr)
    results = []
    for share, bar in SHARES.items():
        splits = []
        for seed in range(SPLITS):
            training = np.random.default_rng(seed).random(len(log)) < share
            known, held_out = log.take(training), log.take(~training)
            model = LogModel.fit(known)
            values = [_click_rates(known), *(_coec(known, constant) for constant in CONSTANTS), model.cold()]
            by_pair = [auc_within_position(each[held_out.rows], held_out) for each in values]
            splits.append(
                [
                    *by_pair,
                    auc_within_position(model.rates(held_out.rows, held_out.positions.astype(np.int64)), held_out),
                ]
            )
        rate, *smoothed, ours, predicted = np.mean(splits, axis=0).tolist()
        figures = [f"{each:.4f}" for each in (rate, max(smoothed), ours, predicted)]
        print(f"| {share:.0%} | {' | '.join(figures)} |", file=sys.stderr, flush=True)
        title = f"Yandex, {share:.0%} for training: AUC within position"
        results.append(Result(f"{title}, bar", round(ours, 3), bar, 1.0, "AUC, three digits as the bar has"))
        results.append(Result(f"{title}, COEC - .001", ours, max(smoothed) - 0.001, 1.0, "AUC"))
    return results


def auc_within_position(values: Float64, log: Clicks) -> float:
    """Return the mean AUC of clicked against unclicked impressions at the same position, weighted by clicks.

    Args:
        values: Estimate for each entry of the log, [entries].
        log: Held-out sessions.
    """
    shown, clicked = log.list_impressions, log.clicks.astype(np.float64)
    areas, weights = [], []
    for position in np.unique(log.positions):
        at = log.positions == position
        _, index = np.unique(values[at], return_inverse=True)
        yes, no = np.bincount(index, weights=clicked[at]), np.bincount(index, weights=(shown - clicked)[at])
        below = np.cumsum(no) - no
        if yes.sum() * no.sum() > 0:
            areas.append((yes * (below + 0.5 * no)).sum() / (yes.sum() * no.sum()))
            weights.append(yes.sum())
    return float(np.average(areas, weights=weights))


def _sums(log: Clicks, values: Float64 | Int64) -> Float64:
    return np.bincount(log.rows, weights=values, minlength=log.lists.documents).astype(np.float64)


def _click_rates(log: Clicks) -> Float64:
    """Return clicks over impressions; the mean for documents that were never shown, [documents]."""
    shown, clicked = _sums(log, log.list_impressions), _sums(log, log.clicks)
    return np.where(shown > 0, clicked / np.maximum(shown, 1), clicked.sum() / shown.sum())


def _coec(log: Clicks, constant: float) -> Float64:
    """Return clicks over the clicks expected by the click rate of each position, smoothed, [documents]."""
    rates = np.bincount(log.positions, weights=log.clicks) / np.maximum(
        np.bincount(log.positions, weights=log.list_impressions), 1
    )
    expected = _sums(log, log.list_impressions * rates[log.positions])
    return np.asarray((_sums(log, log.clicks) + constant) / (expected + constant))


def _trec(folder: Path) -> list[Result]:
    log = read_sessions(folder / "sessions.tsv.gz", on_error="quarantine").clicks
    with gzip.open(folder / "grades.tsv.gz", "rt", encoding="utf-8") as opened:
        given = {(row["query"], row["document"]): int(row["grade"]) for row in csv.DictReader(opened, delimiter="\t")}
    lists, documents = log.lists, log.lists.document_ids
    if documents is None:
        raise RuntimeError("the log does not name its documents")
    names = zip(lists.query_ids[lists.list_of].tolist(), documents.tolist(), strict=True)
    grades = np.array([given.get(name, -99) for name in names])
    graded = np.flatnonzero(grades > -99)
    lengths = np.bincount(lists.list_of[graded], minlength=len(lists))
    kept = lengths > 0
    offsets = np.concatenate([[0], np.cumsum(lengths[kept])]).astype(np.int64)
    chosen = Lists(np.zeros((len(graded), 0), np.float32), offsets, lists.query_ids[kept])
    judged = JudgedLists(chosen, np.maximum(grades[graded], 0).astype(np.int32))
    position = _sums(log, log.list_impressions * log.positions) / np.maximum(_sums(log, log.list_impressions), 1)
    model = LogModel.fit(log)
    value = model.relevance.by_document(lists.documents, cold=0.0)
    scores = {"logged order": -position, "click rate": _click_rates(log), "model": value}
    found = {name: _mean_ndcg(judged, each[graded]) for name, each in scores.items()}
    print(f"TREC 2014, {len(chosen)} graded queries: {_figures(found)}", file=sys.stderr)
    return [
        Result(f"TREC 2014: nDCG, {peer} - .013", found["model"], found[peer] - NOISE, 1.0, "nDCG(exp)@10")
        for peer in ("logged order", "click rate")
    ]


def _mean_ndcg(judged: JudgedLists, scores: Float64) -> float:
    """Return nDCG(exp)@10, averaged over random orders of documents with equal scores."""
    values = []
    for seed in range(TIES):
        rank = np.empty(len(scores))
        rank[np.lexsort((np.random.default_rng(seed).random(len(scores)), scores))] = np.arange(len(scores))
        values.append(evaluate(judged, rank, "nDCG(exp)@10").mean("nDCG(exp)@10"))
    return float(np.mean(values))


def _figures(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in found.items())


def _expedia(folder: Path) -> list[Result]:
    with gzip.open(folder / "searches.csv.gz", "rt", encoding="utf-8") as opened:
        rows = [row for row in csv.DictReader(opened) if None not in row.values()]
    ways = [(column, depth) for column in ("srch_destination_id", "srch_id") for depth in (None, 10)]
    agreeing = 0
    for column, depth in ways:
        model = LogModel.fit(_searches(rows, column), settings=LogModelSettings(depth=depth))
        random, title = model.references.get("randomised"), f"Expedia, a query is a {column}, depth {depth}"
        if random is None:
            print(f"{title}: {model.unsupported['randomised']}; {_curve(model.curve.values)}", file=sys.stderr)
            continue
        agreeing += random.agrees
        print(
            f"{title}: p = {random.p_value:.3f}, {'agrees' if random.agrees else 'differs'}\n"
            f"  all searches {_curve(model.curve.values)}\n  random order {_curve(random.curve.values)}\n"
            f"  its intervals {_curve(random.curve.lower)} to {_curve(random.curve.upper)}",
            file=sys.stderr,
        )
    return [Result("Expedia: random order and all searches agree", agreeing, len(ways), 1.0, "ways to define a query")]


def _curve(values: Float64) -> str:
    return " ".join(f"{value:.2f}" for value in values[:10])


def _searches(rows: list[dict[str, str]], column: str) -> Logged:
    """Return the searches of Expedia; documents with the same value of the column belong to one query."""
    query = np.array([row[column] for row in rows])
    names, number = np.unique(query, return_inverse=True)
    hotel = np.unique([row["prop_id"] for row in rows], return_inverse=True)[1]
    pairs, row_of = np.unique(number * (int(hotel.max()) + 1) + hotel, return_inverse=True)
    lengths = np.bincount(pairs // (int(hotel.max()) + 1), minlength=len(names))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    lists = Lists(np.zeros((len(pairs), 0), np.float32), offsets, names)
    search, position, clicked, random = (
        np.array([int(row[name]) for row in rows]) for name in ("srch_id", "position", "click_bool", "random_bool")
    )
    day = np.array([np.datetime64(row["date_time"][:10]) for row in rows]).astype(np.int64)
    order = np.lexsort((position, search))
    starts = np.flatnonzero(np.diff(search[order], prepend=-1))
    clicks = Clicks(
        lists,
        np.append(starts, len(rows)).astype(np.int64),
        row_of[order].astype(np.int64),
        position[order].astype(np.int32),
        clicked[order].astype(np.int64),
        np.ones(len(starts), dtype=np.int64),
    )
    return Logged(clicks, day[order][starts], randomised=random[order] == 1)
