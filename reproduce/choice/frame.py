"""Simulate the frame of a shop: categories as queries, and items with numbers and one-hot encoded categories.

A request asks for a category, and shows 10 of its 80 items in an order that is random but for a little relevance. The
query of the log is the request, so that each pair is shown once, or the category, so that there are five queries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal, TypeAlias, final

import numpy as np
from scipy.special import expit
from scipy.stats import spearmanr

import clickprism as cp
from clickprism._util.processes import side_by_side
from clickprism.auto.checks import choose_ranker
from clickprism.data.logged import Logged
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.types import Clicks, Float32, Float64, Int64, Lists

Query: TypeAlias = Literal["request", "category"]
Engine: TypeAlias = Literal["weak", "price"]

QUERIES: Final[tuple[Query, ...]] = ("request", "category")
ENGINES: Final[tuple[Engine, ...]] = ("weak", "price")
CATEGORIES: Final = 5
ITEMS: Final = 400
SHOWN: Final = 10
PRICE: Final = 2  # number by which the engine "price" orders items
NUMBERS, BRANDS, COLOURS = 3, 12, 6
POSITION, SMALL, PLAIN, DLA = "LightGBM `position=`", "LightGBM `position=`, small trees", "LightGBM", "DLA, linear"
RIVALS: Final = (POSITION, SMALL, PLAIN, DLA)
TREES: Final = {"objective": "lambdarank", "verbose": -1, "num_threads": 1, "seed": 0, "deterministic": True}
SMALL_TREES: Final = {"num_leaves": 4, "min_data_in_leaf": 100}  # the best of three settings that were tried
ROUNDS: Final = 100


@final
@dataclass(frozen=True, eq=False)
class Frame:
    """Rows as a shop logs them, ten for each request in the order of their positions, and the truth.

    Attributes:
        features: Features of the items, [items, 21].
        category: Category of each item, [items].
        relevance: Probability of a click if the item is observed, [items].
        shown: Items of each request, by position, [requests, 10].
        clicks: Whether each was clicked, [requests, 10].
    """

    features: Float32
    category: Int64
    relevance: Float64
    shown: Int64
    clicks: Int64

    def logged(self, query: Query) -> Logged:
        """Return the rows as a log whose queries are the requests or the categories."""
        requests, entries = len(self.shown), self.shown.size
        ids = np.arange(ITEMS).astype(np.str_)
        if query == "request":
            items, starts = self.shown.ravel(), np.arange(0, entries + 1, SHOWN)
            lists = Lists(self.features[items], starts, np.arange(requests).astype(np.str_), ids[items])
            rows = np.arange(entries)
        else:
            order = np.argsort(self.category, kind="stable")
            starts = np.searchsorted(self.category[order], np.arange(CATEGORIES + 1))
            lists = Lists(self.features[order], starts, np.arange(CATEGORIES).astype(np.str_), ids[order])
            rows = np.argsort(order)[self.shown.ravel()]
        positions = np.tile(np.arange(1, SHOWN + 1, dtype=np.int32), requests)
        offsets = np.arange(0, entries + 1, SHOWN)
        clicks = Clicks(lists, offsets, rows, positions, self.clicks.ravel(), np.ones(requests, dtype=np.int64))
        return Logged(clicks)

    def spearman(self, scores: Float64) -> float:
        """Return the rank correlation of scores of the items with their relevance, on average over categories."""
        parts = (self.category == number for number in range(CATEGORIES))
        return float(np.mean([spearmanr(scores[part], self.relevance[part]).statistic for part in parts]))


def shop_frame(seed: int, *, engine: Engine = "weak", requests: int = 5000) -> Frame:
    """Simulate a frame; the same arguments give the same rows.

    Relevance is sigmoid(numbers + brand + colour + one product of a number and a group of brands - 1.5), and position k
    is observed with probability 1 / k.

    Args:
        seed: Random seed.
        engine: "weak" orders items by chance and a little by relevance (correlation .2); "price" by chance and one
            number (correlation .7) that says little about relevance, so that raw clicks teach this number.
        requests: Number of requests.
    """
    rng = np.random.default_rng([seed, 71])
    category = np.arange(ITEMS, dtype=np.int64) % CATEGORIES
    numbers = rng.normal(size=(ITEMS, NUMBERS))
    brand, colour = rng.integers(0, BRANDS, ITEMS), rng.integers(0, COLOURS, ITEMS)
    logit = (
        numbers @ np.array([0.7, -0.4, 0.2]) + rng.normal(0, 0.6, BRANDS)[brand] + rng.normal(0, 0.4, COLOURS)[colour]
    )
    logit += 0.6 * numbers[:, 1] * (brand < BRANDS // 3)
    relevance = expit(logit - 1.5)
    features = np.column_stack([numbers, np.eye(BRANDS)[brand], np.eye(COLOURS)[colour]]).astype(np.float32)
    asked = rng.integers(0, CATEGORIES, requests)
    own = np.argsort(rng.random((requests, ITEMS // CATEGORIES)), axis=1)[:, :SHOWN] * CATEGORIES + asked[:, None]
    quality = (logit - logit.mean()) / logit.std()
    known, share = (quality, 0.2) if engine == "weak" else (numbers[:, PRICE], 0.7)
    score = share * known[own] + np.sqrt(1 - share**2) * rng.normal(size=own.shape)
    shown = np.take_along_axis(own, np.argsort(-score, axis=1), axis=1).astype(np.int64)
    clicks = rng.random(own.shape) < relevance[shown] / np.arange(1, SHOWN + 1)
    return Frame(features, category, relevance, shown, clicks.astype(np.int64))


@final
@dataclass(frozen=True)
class TriedFrame:
    """What rankers reach on one frame.

    Attributes:
        engine: The engine.
        query: What the query of the log is.
        seed: Seed of the frame.
        clicks: Number of clicks.
        chosen: Name of the ranker that `auto` uses.
        values: Rank correlation with the true relevance by name: `auto`, its candidates and the rivals.
        seconds: Seconds of `auto`.
    """

    engine: Engine
    query: Query
    seed: int
    clicks: int
    chosen: str
    values: dict[str, float]
    seconds: float


def try_frame(engine: Engine, query: Query, seed: int) -> TriedFrame:
    """Train `auto` and its rivals on one frame."""
    frame = shop_frame(seed, engine=engine)
    logged = frame.logged(query)
    begun = time.perf_counter()
    model = LogModel.fit(logged, settings=LogModelSettings(resamples=0))
    checked = choose_ranker(logged, model, seed=seed)
    seconds = time.perf_counter() - begun
    items = Lists(frame.features, np.array([0, ITEMS]), np.array(["all"]))
    normalised = items.with_features(checked.normaliser(items).features)
    found = checked.candidates
    values = {name: frame.spearman(each.make().score(normalised)) for name, each in found.found.items()}
    values["raw clicks"] = frame.spearman(found.raw.make().score(normalised))
    chosen = found.chosen if checked.use == "corrected" else "raw clicks"
    values["auto"] = values[chosen]
    values[POSITION] = frame.spearman(lightgbm_scores(frame, position=True))
    values[SMALL] = frame.spearman(lightgbm_scores(frame, position=True, **SMALL_TREES))
    values[PLAIN] = frame.spearman(lightgbm_scores(frame, position=False))
    values[DLA] = frame.spearman(_dla(logged, items))
    return TriedFrame(engine, query, seed, int(frame.clicks.sum()), chosen, values, seconds)


def lightgbm_scores(frame: Frame, *, position: bool, **settings: int) -> Float64:
    """Return the scores of the items by LightGBM's lambdarank, whose queries are the requests.

    Args:
        frame: The rows.
        position: Whether LightGBM corrects for position bias (`position=`).
        settings: Settings of LightGBM; by default its own.
    """
    import lightgbm

    requests, shown = frame.shown.shape
    data = lightgbm.Dataset(
        frame.features[frame.shown.ravel()],
        frame.clicks.ravel(),
        group=np.full(requests, shown),
        position=np.tile(np.arange(shown), requests) if position else None,
    )
    return np.asarray(lightgbm.train({**TREES, **settings}, data, ROUNDS).predict(frame.features), dtype=np.float64)


def _dla(logged: Logged, items: Lists) -> Float64:
    """Return the scores of the items by dual learning with a linear ranker."""
    fitted = cp.fit(
        logged.clicks, method=cp.DualLearning(), ranker=cp.Linear(), settings=cp.FitSettings(threads=1), show=False
    )
    return np.asarray(fitted.model.score(items), dtype=np.float64)


def try_frames(draws: int, *, processes: int, tell: Callable[[TriedFrame], None]) -> list[TriedFrame]:
    """Return the results of every engine, definition of the query and seed."""
    tasks = [(try_frame, (engine, query, seed)) for engine in ENGINES for query in QUERIES for seed in range(draws)]
    found: list[TriedFrame] = []
    for each in side_by_side(tasks, processes):
        found.append(each)
        tell(each)
    return found


def frame_table(tried: Sequence[TriedFrame]) -> str:
    """Return the means over seeds and the lowest and highest value of each way, as Markdown."""
    names = ("auto", *RIVALS, "raw clicks")
    head = ["engine", "query", "clicks", *("`auto`" if name == "auto" else name for name in names), "used", "seconds"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for engine, query in product(ENGINES, QUERIES):
        own = [each for each in tried if (each.engine, each.query) == (engine, query)]
        if not own:
            continue
        cells = [engine, query, f"{np.mean([each.clicks for each in own]):.0f}"]
        for name in names:
            values = [each.values[name] for each in own]
            cells.append(f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})")
        used = ", ".join(dict.fromkeys(each.chosen for each in own))
        cells += [used, f"{np.mean([each.seconds for each in own]):.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    lead = min(tried, key=lambda each: each.values["auto"] - each.values[POSITION])
    worst = lead.values["auto"] - lead.values[POSITION]
    where = f"engine {lead.engine}, query = {lead.query}, seed {lead.seed}"
    return "\n".join([f"- `auto` against LightGBM `position=`: {worst:+.3f} at worst ({where}).", "", *lines]) + "\n"
