"""Small logs whose truth is known: clicks are binomial, with chance observation times relevance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clickprism.data.logged import Logged
from clickprism.types import Clicks, Float32, Float64, Int64, Lists, Text


@dataclass(frozen=True, eq=False)
class World:
    """A log and its truth.

    Attributes:
        log: One ranked list for each query and day.
        relevance: Click probability of each document at the first position if observation there is 1, [documents].
        curve: Observation at each position, [positions].
        query: Query of each ranked list, [ranked lists].
    """

    log: Logged
    relevance: Float64
    curve: Float64
    query: Int64


def power(positions: int, exponent: float = 0.7) -> Float64:
    """Return the curve k^-exponent."""
    return np.arange(1, positions + 1, dtype=np.float64) ** -exponent


def world(
    seed: int,
    *,
    queries: int = 100,
    documents: int = 6,
    days: int = 3,
    searches: int = 20,
    curve: Float64 | None = None,
    noise: float = 1.0,
    reaction: float = 0.0,
    features: int = 0,
    explained: float = 0.8,
    mean: float = -1.5,
    spread: float = 1.0,
    level: float = 0.0,
    steepness: float = 0.0,
    trust: float = 0.0,
    coupling: float = 0.0,
) -> World:
    """Return a log of an engine that ranks by log-odds of relevance plus noise, drawn each day.

    Args:
        seed: Random seed.
        queries: Number of queries.
        documents: Documents of each query; all are shown.
        days: Number of days; each query has one ranking a day.
        searches: Searches of each query on each day.
        curve: Observation by position.
        noise: Standard deviation of the noise in the engine's scores, in units of the spread of relevance. Infinity:
            the ranking is random. 0: documents do not move.
        reaction: How much the engine adds to the score of a document for its click rate so far.
        features: Number of features. The first one explains relevance, the others are noise.
        explained: Correlation of the log-odds of relevance with the first feature.
        mean: Mean log-odds of relevance.
        spread: Their standard deviation within a query.
        level: Standard deviation of the mean over queries.
        steepness: Standard deviation over queries of the log exponent of the curve.
        trust: Clicks that trust adds at the first position; at position k a share of .6 / (k - .4) of it.
        coupling: How much steeper the curve is for a document with a higher second feature.
    """
    rng = np.random.default_rng(seed)
    curve = power(documents) if curve is None else curve
    signal = rng.normal(size=(queries, documents))
    own = explained * signal + np.sqrt(1 - explained**2) * rng.normal(size=signal.shape) if features else signal
    logits = mean + spread * own + level * rng.normal(size=(queries, 1))
    relevance = 1 / (1 + np.exp(-logits))
    columns = np.concatenate([signal[:, :, None], rng.normal(size=(queries, documents, max(features - 1, 0)))], axis=2)
    exponent = np.exp(steepness * rng.normal(size=(queries, 1))) * np.ones((queries, documents))
    if coupling:
        exponent = exponent * (1 + coupling * columns[:, :, 1])
    added = trust * 0.6 / (np.arange(1, documents + 1) - 0.4)
    clicked, shown = np.zeros(relevance.shape), np.zeros(relevance.shape)
    rows, clicks, of_day, of_query = [], [], [], []
    for day in range(days):
        noisy = rng.normal(size=relevance.shape)
        score = noisy if np.isinf(noise) else own + noise * noisy
        score = score + reaction * (clicked + 0.3) / (shown + 2)
        for query in range(queries):
            order = np.argsort(-score[query], kind="stable")
            observed = curve ** exponent[query, order]
            drawn = rng.binomial(searches, np.minimum(observed * (relevance[query, order] + added), 1.0))
            clicked[query, order] += drawn
            shown[query, order] += searches
            rows.append(query * documents + order)
            clicks.append(drawn)
            of_day.append(day)
            of_query.append(query)
    lists = lists_of(queries, documents, columns.reshape(-1, columns.shape[2])[:, :features].astype(np.float32))
    log = clicks_of(lists, np.array(rows), np.array(clicks), searches)
    return World(Logged(log, np.array(of_day)), relevance.ravel(), curve, np.array(of_query))


def lists_of(queries: int, documents: int, features: Float32 | None = None) -> Lists:
    """Return lists of equal length with ids."""
    size = queries * documents
    return Lists(
        np.zeros((size, 0), dtype=np.float32) if features is None else np.ascontiguousarray(features),
        np.arange(0, size + 1, documents),
        np.array([f"query {number}" for number in range(queries)]),
        np.array([f"document {number}" for number in range(size)]),
    )


def clicks_of(lists: Lists, rows: Int64, clicks: Int64, searches: Int64 | int) -> Clicks:
    """Return clicks on ranked lists of equal length, positions from 1; `rows` and `clicks` are [lists, length]."""
    count, length = rows.shape
    return Clicks(
        lists,
        np.arange(0, count * length + 1, length),
        rows.ravel().astype(np.int64),
        np.tile(np.arange(1, length + 1, dtype=np.int32), count),
        clicks.ravel().astype(np.int64),
        np.broadcast_to(searches, (count,)).astype(np.int64),
    )


def devices(world: World, names: tuple[str, ...], seed: int = 0) -> Text:
    """Return a random device for each ranked list."""
    return np.array(names)[np.random.default_rng(seed).integers(0, len(names), len(world.log))]
