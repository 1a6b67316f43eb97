"""Click models on a million sessions of ten: speed against EM over sessions as Python objects, and the truth recovered.

The peer is EM as PyClick runs it (Chuklin, Markov and de Rijke 2015): an object for each session and each result, a
container of numerator and denominator for each parameter, found by dictionary, and an E-step for each session and rank.
It runs on a sample; its cost is linear in the sessions, and so it is scaled up. It takes PASSES passes, PyClick's
default. Our time is all that is needed from the sessions to the fitted model: counting, and steps until the curve has
stopped to 1e-4. As many passes of EM over our counts would cost less than that (a tenth of a second), and leave UBM's
table 3% from its limit.

The log is what estimation needs: queries asked often enough, and the top ten shuffled, so that every document is shown
at every position. Truth recovered: the mean relative error of the curve (of UBM's table, weighted by sessions), the
largest of the probabilities to go on, and for what belongs to a document the mean error over the mean, weighted by
looks (attraction) or clicks (satisfaction). The latter is sampling error: it falls as the root of the sessions of a
document, and is hardly more than what one who knows all looks would have (`known` in the table that goes to stderr).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import numpy as np

from benchmarks.base import Result, seconds
from clickprism.click_models.ccm import ClickChainModel, ClickChainUser
from clickprism.click_models.dbn import BayesianModel, BayesianUser
from clickprism.click_models.factors import Factors, fit_factors
from clickprism.click_models.fitted import Prior
from clickprism.click_models.pbm import PositionUser, count_positions
from clickprism.click_models.ubm import BrowsingUser, count_browsing
from clickprism.click_models.users import User, attraction
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.simulation.rankings import Intervention
from clickprism.types import Clicks, Float64, JudgedLists, Simulation

SESSIONS = 1_000_000
SAMPLE = 5_000
PASSES = 50
MEASURED = 3  # of these passes; all cost the same
QUERIES, FEW = 300, 30  # for curves; for parameters of documents, so that each has sessions enough
NONE = Prior(0.0, 0.0)


class Found:
    """One result of a session."""

    def __init__(self, document: int, click: bool) -> None:
        self.document = document
        self.click = click


class Session:
    """One session, as its results, best first."""

    def __init__(self, query: int, results: list[Found]) -> None:
        self.query = query
        self.results = results


class Share:
    """A parameter of EM as numerator and denominator, which start with 1 and 2."""

    def __init__(self) -> None:
        self.above, self.below = 1.0, 2.0

    def value(self) -> float:
        """What has been counted."""
        return self.above / self.below

    def update(self, above: float, below: float) -> None:
        """Count one more."""
        self.above += above
        self.below += below


def object_em(sessions: list[Session], *, passes: int, browsing: bool) -> dict[tuple[int, int], Share]:
    """EM over objects; the observation by (rank, rank of the last click), which is always -1 for the PBM."""
    attractions: dict[tuple[int, int], Share] = {}
    observations: dict[tuple[int, int], Share] = {}
    for _ in range(passes):
        new_attractions: dict[tuple[int, int], Share] = {}
        new_observations: dict[tuple[int, int], Share] = {}
        for session in sessions:
            last = -1
            for rank, found in enumerate(session.results):
                document, cell = (session.query, found.document), (rank, last)
                a = attractions.setdefault(document, Share()).value()
                t = observations.setdefault(cell, Share()).value()
                one, other = (1.0, 1.0) if found.click else ((1 - t) * a / (1 - t * a), (1 - a) * t / (1 - t * a))
                new_attractions.setdefault(document, Share()).update(one, 1)
                new_observations.setdefault(cell, Share()).update(other, 1)
                if browsing and found.click:
                    last = rank
        attractions, observations = new_attractions, new_observations
    return observations


def objects(clicks: Clicks) -> list[Session]:
    """The sessions of a log as objects."""
    result = []
    for begin, end in zip(clicks.offsets[:-1].tolist(), clicks.offsets[1:].tolist(), strict=True):
        rows, clicked = clicks.rows[begin:end].tolist(), (clicks.clicks[begin:end] > 0).tolist()
        query = int(clicks.lists.list_of[rows[0]])
        result.append(Session(query, [Found(*pair) for pair in zip(rows, clicked, strict=True)]))
    return result


def position(clicks: Clicks) -> Factors:
    """From sessions to the fitted PBM."""
    return fit_factors(count_positions(clicks))


def browsing(clicks: Clicks) -> Factors:
    """From sessions to the fitted UBM."""
    return fit_factors(count_browsing(clicks))


def run() -> list[Result]:
    """PBM and UBM by speed and truth, DBN and CCM by truth."""
    data = synthetic(SyntheticSettings(train_queries=QUERIES, validation_queries=1, test_queries=1)).train
    few = data.take(np.arange(FEW))
    return [
        *_position(data),
        *_browsing(data),
        *_chain(few, BayesianUser(0.9, 0.8), BayesianModel(prior=NONE), {"perseverance": 0.9}),
        *_chain(
            few,
            ClickChainUser.informational(after_skip=0.8),
            ClickChainModel(prior=NONE),
            {"after_skip": 0.8, "after_irrelevant": 0.4, "after_relevant": 0.27},
        ),
    ]


def _log(data: JudgedLists, user: User) -> Simulation:
    settings = SimulationSettings(intervention=Intervention(kind="shuffle"), merge="none")
    return simulate(data, user, sessions=SESSIONS, seed=0, settings=settings)


def _position(data: JudgedLists) -> list[Result]:
    log = _log(data, PositionUser()).clicks
    true = PositionUser().observation(np.arange(1, 11))
    error = float(np.abs(position(log).observation / (true / true[0]) - 1).mean())
    return [_faster("PBM", log, lambda: position(log)), _close("PBM curve", error, 0.02)]


def _browsing(data: JudgedLists) -> list[Result]:
    log = _log(data, BrowsingUser()).clicks
    groups = count_browsing(log)
    table = fit_factors(groups).observation.reshape(10, 10)
    true = np.full((10, 10), np.nan)
    for k, d in zip(*np.tril_indices(10), strict=True):
        true[k, d] = BrowsingUser().observation(np.array([k + 1]), np.array([k + 1 - d if d else 0]))[0]
    shown = np.bincount(groups.cells, weights=groups.impressions, minlength=100).reshape(10, 10)
    error = float(np.nansum(shown * np.abs(table / true - 1)) / shown.sum())
    return [_faster("UBM", log, lambda: browsing(log)), _close("UBM table", error, 0.02)]


def _chain(
    data: JudgedLists, user: User, model: BayesianModel | ClickChainModel, true: dict[str, float]
) -> list[Result]:
    log = _log(data, user)
    found, name = model.fit(log.clicks), model.name.upper()
    worst = max(abs(float(found.parameters[field]) / value - 1) for field, value in true.items())
    chance = attraction(data).astype(np.float64)
    looks, clicks = (
        np.bincount(log.clicks.rows, weights=sums, minlength=len(chance)).astype(np.float64)
        for sums in (log.truth.observed, log.clicks.clicks)
    )
    error, known = (_error(values, chance, looks) for values in (found.attraction, clicks / np.maximum(looks, 1)))
    print(f"{name} attraction: error {error:.4f}, known looks {known:.4f}; {found.iterations} steps", file=sys.stderr)
    results = [_close(f"{name} probabilities to go on", worst, 0.05), _close(f"{name} attraction", error, 0.05)]
    if isinstance(user, BayesianUser):
        error = _error(found.parameters["satisfaction"], user.satisfaction * chance, clicks)
        results.append(_close(f"{name} satisfaction", error, 0.05))
    return results


def _error(found: Float64, true: Float64, weights: Float64) -> float:
    return float(weights @ np.abs(found - true) / (weights @ true))


def _faster(name: str, log: Clicks, ours: Callable[[], object]) -> Result:
    sample = objects(log.take(np.arange(SAMPLE)))
    gc.collect()
    ours()
    passes = seconds(lambda: object_em(sample, passes=MEASURED, browsing=name == "UBM"), repeats=2)
    peer = SAMPLE / (passes * PASSES / MEASURED)
    return Result(f"{name}: 1 M sessions against objects", SESSIONS / seconds(ours), peer, 100, "sessions/s, whole fit")


def _close(name: str, error: float, limit: float) -> Result:
    return Result(f"{name}: relative error", error, limit, 1.0, f"limit: {limit}", higher_is_better=False)
