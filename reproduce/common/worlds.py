"""Simulate worlds: users with known biases, a search engine with a known policy, and the log of some days.

A world contains what a diagnosis must find without seeing it: how users browse, what they trust, which documents they
notice, and how the engine chose what to show. Its log is a `Logged`, as any site has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, TypeAlias, final

import numpy as np

from clickprism.click_models.ccm import ClickChainUser
from clickprism.click_models.coupled import CoupledUser
from clickprism.click_models.dbn import BayesianUser
from clickprism.click_models.pbm import PositionUser
from clickprism.click_models.popularity import PopularityUser, item_ids
from clickprism.click_models.ubm import BrowsingUser
from clickprism.data.logged import Logged
from clickprism.data.normalise import normalised
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.errors import SettingError
from clickprism.log_model.results import Verdict
from clickprism.simulation.clicks import SimulationSettings, frequencies, simulate
from clickprism.simulation.rankings import InitialRanker, Intervention
from clickprism.types import Bool, Clicks, Dataset, Float64, JudgedLists, concatenate
from reproduce.common.composed import Base, ComposedUser

Browsing: TypeAlias = Literal["pbm", "ubm", "ccm", "dbn"]
Policy: TypeAlias = Literal["single", "blocks", "several", "changing", "swap", "first", "shuffle", "feedback"]

RANKERS: Final = ("ranker-1", "ranker-2", "ranker-3")
INTERVENTION_SHARE: Final = 0.05  # of the sessions, under "swap", "first" and "shuffle"
FEEDBACK_WEIGHT: Final = 1.0  # of past clicks, in standard deviations of the score, under "feedback"


@final
@dataclass(frozen=True, kw_only=True)
class WorldSettings:
    """What is true in a world and hidden from a diagnosis of its log.

    Attributes:
        browsing: User model: pbm (observation depends on the position only), or ubm, ccm or dbn (it also depends on
            clicks above).
        severity: Strength of position bias with pbm; 0 means none.
        trust: Strength of trust bias (`ComposedUser`); 0 means none.
        coupling: Dependence of observation on document features (eta of `CoupledUser`); 0 means none. Only with pbm.
        attention: Dependence of observation on past clicks (strength of `PopularityUser`); 0 means none. Only with pbm.
        policy: What the engine shows. "single": one ranker, always the same lists. "blocks": several rankers, but a
            document stays within positions 1 to 5 or within 6 to 10. "several": three rankers at random. "changing":
            three rankers, one after the other. "swap", "first", "shuffle": one ranker, and this `Intervention` in a
            share of the sessions. "feedback": one ranker whose scores depend on the clicks of earlier days.
        queries: Number of training queries. There are as many test queries, but at least 300.
        features: Number of document features.
        sessions: Number of sessions on all days together.
        days: Number of days.
        zipf: Exponent of the query frequencies.
        seed: Random seed.
    """

    browsing: Browsing = "pbm"
    severity: float = 1.0
    trust: float = 0.0
    coupling: float = 0.0
    attention: float = 0.0
    policy: Policy = "several"
    queries: int = 600
    features: int = 32
    sessions: int = 100_000
    days: int = 6
    zipf: float = 0.7
    seed: int = 0

    def __post_init__(self) -> None:
        if self.browsing != "pbm" and (self.coupling > 0 or self.attention > 0):
            raise SettingError("browsing", self.browsing, "be pbm if observation depends on documents")
        for name in ("queries", "features", "sessions", "days"):
            if getattr(self, name) < 1:
                raise SettingError(name, getattr(self, name), "be at least 1")

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """What a diagnosis should say about each bias; inconclusive if no document is shown at enough positions."""
        identifiable = self.policy not in ("single", "blocks")
        biased = self.browsing != "pbm" or self.severity > 0

        def verdict(present: bool) -> Verdict:
            return "present" if present else "absent"

        return {
            "position": verdict(biased) if identifiable else "inconclusive",
            "trust": verdict(self.trust > 0 and biased) if identifiable else "inconclusive",
            "coupling": verdict(self.coupling > 0 and biased) if identifiable else "inconclusive",
            "popularity": verdict(self.attention > 0 and biased) if identifiable else "inconclusive",
            "interaction": verdict(self.browsing != "pbm"),
            "feedback": verdict(self.policy == "feedback"),
            "identifiability": verdict(identifiable),
        }


@final
@dataclass(frozen=True, eq=False)
class World:
    """A log as a site has it, and the truth.

    Attributes:
        settings: What is true. Never pass it to what is tested on the world.
        logged: The log, over the documents of `data.train`.
        data: Documents with quantile-normalised features and true grades. Measure rankers on `data.test`.
        user: The user model, adapted to the documents.
        shares: Share of all searches for each training query, [queries]; the sum is 1.
        attraction_noise: Noise of the users: attraction = noise + (1 - noise) (2^y - 1) / (2^ymax - 1).
    """

    settings: WorldSettings
    logged: Logged
    data: Dataset
    user: ComposedUser
    shares: Float64
    attraction_noise: float = 0.1


def draw_settings(seed: int) -> WorldSettings:
    """Return random settings: each bias is absent in some worlds, and of random strength in the others.

    >>> draw_settings(3) == draw_settings(3)
    True
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(9,)))
    browsing: Browsing = "pbm" if rng.random() < 0.65 else rng.choice(["ubm", "ccm", "dbn"])
    severity = 0.0 if browsing == "pbm" and rng.random() < 0.15 else float(rng.uniform(0.5, 1.5))
    may_depend_on_documents = browsing == "pbm" and severity > 0
    trust, coupling, attention = rng.uniform((0.2, 0.15, 0.3), (0.65, 0.6, 0.8))
    policy: Policy = rng.choice(
        ["single", "blocks", "several", "changing", "swap", "first", "shuffle", "feedback"],
        p=[0.08, 0.06, 0.2, 0.16, 0.16, 0.12, 0.06, 0.16],
    )
    return WorldSettings(
        browsing=browsing,
        severity=severity,
        trust=float(trust) if severity > 0 and rng.random() < 0.4 else 0.0,
        coupling=float(coupling) if may_depend_on_documents and rng.random() < 0.5 else 0.0,
        attention=float(attention) if may_depend_on_documents and rng.random() < 0.25 else 0.0,
        policy=policy,
        queries=int(rng.integers(300, 1200)),
        features=int(rng.choice([24, 48])),
        sessions=int(np.exp(rng.uniform(np.log(60_000), np.log(400_000)))),
        days=6,
        zipf=float(rng.uniform(0.3, 1.0)),
        seed=seed,
    )


def make_world(settings: WorldSettings) -> World:
    """Simulate a world; the same settings give the same world.

    >>> world = make_world(WorldSettings(queries=20, sessions=200, days=2))
    >>> len(world.logged.policies), world.logged.clicks.sessions
    (3, 200)
    """
    judged = SyntheticSettings(
        train_queries=settings.queries,
        validation_queries=1,
        test_queries=max(settings.queries, 300),
        features=settings.features,
        seed=settings.seed,
    )
    data, _ = normalised(synthetic(judged), "quantile")
    user_seed, log_seed = np.random.SeedSequence(settings.seed, spawn_key=(7,)).generate_state(2).tolist()
    bases: dict[Browsing, Base] = {
        "pbm": PositionUser(severity=settings.severity),
        "ubm": BrowsingUser(),
        "ccm": ClickChainUser(after_skip=0.85),
        "dbn": BayesianUser(perseverance=0.85, satisfaction=0.8),
    }
    user = ComposedUser(
        base=bases[settings.browsing],
        coupled=CoupledUser(eta=settings.coupling),
        popular=PopularityUser(strength=settings.attention, items=("",), past=(0.0,)),
        trust=settings.trust,
    ).adapt(data.train, seed=user_seed)
    logged, shares = _simulate_days(settings, data.train, user, log_seed)
    return World(settings, logged, data, user, shares)


class _Group(NamedTuple):
    """Sessions of one day with the same ranker and the same intervention."""

    day: int
    ranker: int
    clicks: Clicks
    randomised: Bool


def _simulate_days(
    settings: WorldSettings, judged: JudgedLists, user: ComposedUser, seed: int
) -> tuple[Logged, Float64]:
    """Return the log of all days and the share of searches for each query.

    Past clicks change the rankings under the policy "feedback", and what is observed if `attention` is above 0.
    """
    rng = np.random.default_rng(seed)
    scores = _scores(settings, judged, rng)
    shares = frequencies(len(judged), exponent=settings.zipf, rng=rng)
    items, past_clicks = item_ids(judged.lists), np.zeros(judged.lists.documents)
    groups: list[_Group] = []
    for day in range(settings.days):
        scores_today, user_today = scores, user
        if settings.policy == "feedback" and day > 0:
            popularity = np.log1p(past_clicks)
            scores_today = scores + FEEDBACK_WEIGHT * popularity / max(float(popularity.std()), 1e-9)
        if settings.attention > 0:
            user_today = replace(user, popular=user.popular.after(items, past_clicks))
        today = _simulate_day(settings, judged, user_today, scores_today, shares, day=day, rng=rng)
        for group in today:
            past_clicks += np.bincount(group.clicks.rows, weights=group.clicks.clicks, minlength=len(past_clicks))
        groups += today
    lengths = [len(group.clicks) for group in groups]
    logged = Logged(
        clicks=concatenate([group.clicks for group in groups]),
        days=np.repeat([group.day for group in groups], lengths),
        policy=np.repeat([group.ranker for group in groups], lengths),
        policies=RANKERS,
        randomised=np.concatenate([group.randomised for group in groups]),
        feature_names=tuple(f"f{column + 1}" for column in range(settings.features)),
    )
    return logged, shares


def _simulate_day(
    settings: WorldSettings,
    judged: JudgedLists,
    user: ComposedUser,
    scores: Float64,
    shares: Float64,
    *,
    day: int,
    rng: np.random.Generator,
) -> list[_Group]:
    """Simulate the sessions of a day: those of each active ranker, then those with an intervention."""
    sessions = settings.sessions // settings.days + (day < settings.sessions % settings.days)
    rankers = [day * len(RANKERS) // settings.days] if settings.policy == "changing" else range(len(scores))
    intervention = Intervention()
    if settings.policy in ("swap", "first", "shuffle"):
        intervention = Intervention(kind=settings.policy)
    with_intervention = 0 if intervention.kind == "none" else round(INTERVENTION_SHARE * sessions)
    by_ranker = np.bincount(rng.integers(0, len(rankers), sessions - with_intervention), minlength=len(rankers))
    plan = [(ranker, size, Intervention()) for ranker, size in zip(rankers, by_ranker.tolist(), strict=True)]
    groups = []
    for ranker, size, applied in [*plan, (rankers[0], with_intervention, intervention)]:
        log = SimulationSettings(intervention=applied, merge="pattern")
        seed = int(rng.integers(2**31))
        clicks = simulate(
            judged, user, sessions=size, seed=seed, settings=log, scores=scores[ranker], shares=shares
        ).clicks
        randomised = np.full(len(clicks.rows), applied.kind == "shuffle")
        if applied.kind == "first":
            randomised = clicks.positions == 1
        groups.append(_Group(day, ranker, clicks, randomised))
    return [group for group in groups if len(group.clicks)]


def _scores(settings: WorldSettings, judged: JudgedLists, rng: np.random.Generator) -> Float64:
    """Return the standardised scores of all documents by each ranker of the engine, [rankers, documents]."""
    count = len(RANKERS) if settings.policy in ("several", "changing") else 1
    initial = InitialRanker(share=0.03)
    scores = np.stack([initial.fit(judged, seed=int(rng.integers(2**31)))(judged.lists.features) for _ in range(count)])
    scores = (scores - scores.mean(axis=1, keepdims=True)) / np.maximum(scores.std(axis=1, keepdims=True), 1e-9)
    if settings.policy != "blocks":
        return np.asarray(scores, dtype=np.float64)
    order = np.lexsort((-scores[0], judged.lists.list_of))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(judged.lists.offsets[:-1], judged.lists.lengths)
    block = np.minimum(rank // 5, 2)  # positions 1 to 5, 6 to 10, and all below in a fixed order
    within_block = np.where(block < 2, rng.random((len(RANKERS), len(order))), -rank / (1 + rank.max()))
    return np.asarray(within_block - 10.0 * block, dtype=np.float64)
