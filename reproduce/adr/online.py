"""Table 3: a simulated A/B test of two rankings, by judged queries and by clicks, that may stop at any time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

import clickprism as cp
from clickprism.errors import SettingError
from clickprism.evaluation.sequential import ConfidenceSequence, arm_differences, confidence_sequence
from clickprism.types import Bool, Float64, Int64
from reproduce.adr.config import LEADING
from reproduce.adr.runs import Run
from reproduce.adr.worlds import Site, World, padded, site_of
from reproduce.common.files import key_of

VERSION = 2
JUDGED: Final = 6_000  # queries whose first four results are judged, as in the paper
MARGIN: Final = 0.05  # of the best possible DCG@4 of a query: what annotators would not call a difference
TRAFFIC: Final = ("random", "tail")
CLICKS_TO: Final = 10  # documents whose clicks are counted
FIRST_LOOK: Final = 1_000  # searches: before, the means of the arms are not known well enough
POINTS: Final = 60  # of a sequence that are kept


@dataclass(frozen=True)
class OnlineRun:
    """A new ranking against an old one, on searches as they come and on those of tail queries.

    Attributes:
        new: the run whose ranking is tried.
        old: the run whose ranking it is to replace.
        visits: searches of the test.
    """

    new: Run
    old: Run
    visits: int

    @property
    def world(self) -> World:
        """Where."""
        return self.new.world

    @cached_property
    def key(self) -> str:
        """A hash of all settings."""
        return key_of({"new": self.new.key, "old": self.old.key, "visits": self.visits}, version=VERSION)

    @property
    def log(self) -> World:
        """The log."""
        return self.new.world

    @property
    def kind(self) -> tuple[str, int]:
        """What takes alike long."""
        return "online", self.visits

    def guess(self) -> float:
        """Seconds on one core."""
        return 2 + 4e-6 * self.visits

    def make(self, folder: Path | None) -> dict[str, Any]:
        """Let people search, and annotators judge."""
        start, at_work = time.perf_counter(), time.process_time()
        site = site_of(self.world, folder)
        scores = [run.arrays()["scores"].astype(np.float64) for run in (self.new, self.old)]
        made = {
            traffic: tried(site, *scores, traffic=traffic, seed=self.world.seed, visits=self.visits)
            for traffic in TRAFFIC
        }
        return {
            "run": {"new": self.new.method, "old": self.old.method, "visits": self.visits},
            **made,
            "seconds": time.perf_counter() - start,
            "cpu_seconds": time.process_time() - at_work,
        }


def good_same_bad(new: Float64, old: Float64, best: Float64) -> Int64:
    """How queries compare, by what their first four results gain: 1 good, 0 same, -1 bad, [queries].

    Same: closer than 5% of the best possible.

    >>> good_same_bad(np.array([3.0, 3.0, 2.0]), np.array([2.0, 2.9, 3.0]), np.full(3, 4.0)).tolist()
    [1, 0, -1]
    """
    return np.where(np.abs(new - old) > MARGIN * best, np.sign(new - old), 0).astype(np.int64)


def tried(site: Site, new: Float64, old: Float64, *, traffic: str, seed: int, visits: int) -> dict[str, Any]:
    """Both tests of one kind of traffic."""
    random = np.random.default_rng([seed, 4, TRAFFIC.index(traffic)])
    chance = site.frequency * (site.in_bucket("tail") if traffic == "tail" else 1.0)
    searched = random.choice(len(chance), size=visits, p=chance / chance.sum())
    gains = [cp.evaluate(site.judged, scores, LEADING, empty="zero")[LEADING] for scores in (new, old, site.relevance)]
    judged = searched[:JUDGED]
    difference = confidence_sequence((gains[0] - gains[1])[judged], tightest=JUDGED // 4)
    votes = good_same_bad(*gains)[judged]
    voted = confidence_sequence(votes.astype(np.float64), tightest=JUDGED // 4)
    treated = random.random(visits) < 0.5
    rows = np.where(treated[:, None], _top(site, new)[searched], _top(site, old)[searched])
    made = dict(zip(("clicks", "satisfied"), clicks_of(site, rows, random), strict=True))
    differences = {name: arm_differences(values, treated) for name, values in made.items()}
    tests = {
        name: confidence_sequence(each, tightest=visits // 4, first_look=FIRST_LOOK)
        for name, each in differences.items()
    }
    base = float(gains[1][judged].mean())
    return {
        "dcg": {"base": base, **_plain(difference)},
        "gsb": {
            "good": int((votes > 0).sum()),
            "same": int((votes == 0).sum()),
            "bad": int((votes < 0).sum()),
            **_plain(voted),
        },
        **{name: {"base": float(made[name][~treated].mean()), **_plain(each)} for name, each in tests.items()},
    }


def _top(site: Site, scores: Float64) -> Int64:
    """The first rows of each query, -1 where there are no more, [queries, CLICKS_TO]."""
    offsets = site.judged.lists.offsets
    order = np.argsort(-padded(scores, offsets, fill=-np.inf), axis=1, kind="stable")[:, :CLICKS_TO]
    return np.where(order < np.diff(offsets)[:, None], order + offsets[:-1, None], -1).astype(np.int64)


def clicks_of(site: Site, rows: Int64, random: np.random.Generator) -> tuple[Float64, Float64]:
    """How many of the rows shown in each search are clicked, and how many of these satisfy, each [searches].

    A clicked document satisfies, as a long dwell time would tell, with the probability of its relevance.
    """
    places = np.arange(rows.shape[1])
    chance = np.where(rows >= 0, site.theta[places] * site.click_if_seen(rows, places), 0.0)
    clicked: Bool = random.random(rows.shape) < chance
    satisfied = clicked & (random.random(rows.shape) < site.relevance[rows])
    return np.asarray(clicked.sum(axis=1), np.float64), np.asarray(satisfied.sum(axis=1), np.float64)


def _plain(sequence: ConfidenceSequence) -> dict[str, Any]:
    """Where it ends, when it was decided, and what it went through."""
    known = int(np.isinf(sequence.high).sum())  # looks before the first
    if known == len(sequence):
        raise SettingError("visits", len(sequence), f"be above {FIRST_LOOK}: before, an A/B test says nothing")
    looks = np.unique(np.geomspace(known + 1, len(sequence), POINTS).astype(np.int64)) - 1
    return {
        "mean": float(sequence.means[-1]),
        "low": float(sequence.low[-1]),
        "high": float(sequence.high[-1]),
        "decided": sequence.decided,
        "at": (looks + 1).tolist(),
        "means": sequence.means[looks].tolist(),
        "lows": sequence.low[looks].tolist(),
        "highs": sequence.high[looks].tolist(),
    }
