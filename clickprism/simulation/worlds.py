"""Worlds drawn by seed, to try on them what is told of a log: users with biases, an engine that ranks, days of clicks.

A world has all that a diagnosis must find and cannot see: how users look, what they trust, what bends their eyes, how
the engine chose what to show. What it gives away is a `Logged`, as any site would have it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, final

import numpy as np

from clickprism.data.logged import Logged
from clickprism.data.normalise import normalised
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.errors import SettingError
from clickprism.simulation.clicks import SimulationSettings, frequencies, simulate
from clickprism.simulation.rankings import InitialRanker, Intervention
from clickprism.types import Dataset, Float64, JudgedLists, concatenate
from clickprism.users.base import adapted
from clickprism.users.ccm import ClickChainUser
from clickprism.users.composed import Base, ComposedUser
from clickprism.users.coupled import CoupledUser
from clickprism.users.dbn import BayesianUser
from clickprism.users.pbm import PositionUser
from clickprism.users.popularity import PopularityUser, item_ids
from clickprism.users.ubm import BrowsingUser

Browsing: TypeAlias = Literal["pbm", "ubm", "ccm", "dbn"]
Policy: TypeAlias = Literal["single", "blocks", "several", "changing", "swap", "first", "shuffle", "feedback"]
Verdict: TypeAlias = Literal["present", "absent", "unknown"]

RANKERS: Final = 3
APART: Final = ("single", "blocks")
SHARE: Final = 0.05
HEED: Final = 1.0  # weight of past clicks, in standard deviations of the score, under "feedback"
NAMES: Final = tuple(f"ranker-{place + 1}" for place in range(RANKERS))


@final
@dataclass(frozen=True)
class WorldSettings:
    """What is true of a world, and what a diagnosis of its log cannot see.

    Attributes:
        browsing: how users look at lists: by position alone, or heeding the clicks above.
        severity: of position bias under "pbm"; 0 is none.
        trust: of `ComposedUser`; 0 is none.
        coupling: eta of `CoupledUser`; 0 is none. Only under "pbm".
        attention: how much past clicks draw the eye, strength of `PopularityUser`; 0 is none. Only under "pbm".
        policy: what the engine shows. "single": one ranker, always the same lists. "blocks": several, but no document
            ever moves between positions 1 to 5 and 6 to 10. "several": three rankers by chance. "changing": three, one
            after the other. "swap", "first", "shuffle": one ranker and that `Intervention` in a share of sessions.
            "feedback": one ranker that heeds the clicks of the days before.
        queries: of the training part; the test part has as many, 300 at least.
        features: of documents.
        sessions: in all days together.
        days: how many.
        zipf: exponent of how often queries are asked.
        seed: of everything random.
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
            raise SettingError("browsing", self.browsing, "be pbm where documents bend the observation")
        for name in ("queries", "features", "sessions", "days"):
            if getattr(self, name) < 1:
                raise SettingError(name, getattr(self, name), "be at least 1")

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """What a diagnosis should say of each bias; what only an experiment could tell is unknown without one."""
        apart = self.policy in APART
        biased = self.browsing != "pbm" or self.severity > 0

        def told(there: bool) -> Verdict:
            return "unknown" if apart else "present" if there else "absent"

        return {
            "position": told(biased),
            "trust": told(self.trust > 0 and biased),
            "coupling": told(self.coupling > 0 and biased),
            "popularity": "present" if self.policy == "feedback" or (self.attention > 0 and biased) else "absent",
            "interaction": "present" if self.browsing != "pbm" else "absent",
            "identifiability": "absent" if apart else "present",
        }


@final
@dataclass(frozen=True, eq=False)
class World:
    """A log as a site would have it, and the truth.

    Attributes:
        settings: what is true; never for what is tried on the world.
        logged: the log, over the documents of `data.train`.
        data: with quantile-normalised features and the true grades; `test` is what a ranker is measured on.
        user: who clicked, adapted to the documents.
        shares: of all searches, those that ask each query of the training part, [queries]; they add up to 1.
        attraction_noise: of the users; attraction = noise + (1 - noise) (2^y - 1) / (2^ymax - 1).
    """

    settings: WorldSettings
    logged: Logged
    data: Dataset
    user: ComposedUser
    shares: Float64
    attraction_noise: float = 0.1


def draw_settings(seed: int) -> WorldSettings:
    """Settings drawn by seed: every bias is absent in about half of the worlds, and as strong as it comes in others.

    >>> draw_settings(3) == draw_settings(3)
    True
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(9,)))
    browsing: Browsing = "pbm" if rng.random() < 0.65 else rng.choice(["ubm", "ccm", "dbn"])
    severity = 0.0 if browsing == "pbm" and rng.random() < 0.15 else float(rng.uniform(0.5, 1.5))
    bends = browsing == "pbm" and severity > 0
    trust, coupling, attention = rng.uniform((0.2, 0.15, 0.3), (0.65, 0.6, 0.8))
    policy: Policy = rng.choice(
        ["single", "blocks", "several", "changing", "swap", "first", "shuffle", "feedback"],
        p=[0.08, 0.06, 0.2, 0.16, 0.16, 0.12, 0.06, 0.16],
    )
    return WorldSettings(
        browsing=browsing,
        severity=severity,
        trust=float(trust) if severity > 0 and rng.random() < 0.4 else 0.0,
        coupling=float(coupling) if bends and rng.random() < 0.5 else 0.0,
        attention=float(attention) if bends and rng.random() < 0.25 else 0.0,
        policy=policy,
        queries=int(rng.integers(300, 1200)),
        features=int(rng.choice([24, 48])),
        sessions=int(np.exp(rng.uniform(np.log(60_000), np.log(400_000)))),
        days=6,
        zipf=float(rng.uniform(0.3, 1.0)),
        seed=seed,
    )


def make_world(settings: WorldSettings) -> World:
    """Let the users of these settings search for days; the same settings give the same world.

    >>> world = make_world(WorldSettings(queries=20, sessions=200, days=2))
    >>> len(world.logged.policies), world.logged.clicks.sessions
    (3, 200)
    """
    made = SyntheticSettings(
        train_queries=settings.queries,
        validation_queries=1,
        test_queries=max(settings.queries, 300),
        features=settings.features,
        seed=settings.seed,
    )
    data, _ = normalised(synthetic(made), "quantile")
    seeds = np.random.SeedSequence(settings.seed, spawn_key=(7,)).generate_state(2)
    planned = ComposedUser(
        base=_base(settings),
        coupled=CoupledUser(eta=settings.coupling),
        popular=PopularityUser(strength=settings.attention, items=("",), past=(0.0,)),
        trust=settings.trust,
    )
    user = adapted(planned, data.train, seed=int(seeds[0]))
    if not isinstance(user, ComposedUser):
        raise TypeError("a user adapts to one of its own kind")
    logged, shares = _log(settings, data.train, user, int(seeds[1]))
    return World(settings, logged, data, user, shares)


def _base(settings: WorldSettings) -> Base:
    if settings.browsing == "ubm":
        return BrowsingUser()
    if settings.browsing == "ccm":
        return ClickChainUser(after_skip=0.85)
    return (
        BayesianUser(perseverance=0.85, satisfaction=0.8)
        if settings.browsing == "dbn"
        else PositionUser(severity=settings.severity)
    )


def _log(settings: WorldSettings, judged: JudgedLists, user: ComposedUser, seed: int) -> tuple[Logged, Float64]:
    """Days of searches, and how often each query is asked: past clicks may decide what is shown, and what is seen."""
    rng = np.random.default_rng(seed)
    scores = _scores(settings, judged, rng)
    asked = frequencies(len(judged), exponent=settings.zipf, rng=rng)
    items, past = item_ids(judged.lists), np.zeros(judged.lists.documents)
    parts: list[Logged] = []
    days: list[int] = []
    for day in range(settings.days):
        size = settings.sessions // settings.days + (day < settings.sessions % settings.days)
        turn = min(day * RANKERS // settings.days, RANKERS - 1) if settings.policy == "changing" else 0
        shown, today = scores[[turn]] if settings.policy == "changing" else scores, user
        if settings.policy == "feedback" and day > 0:
            heed = np.log1p(past)
            shown = scores + HEED * heed / max(float(heed.std()), 1e-9)
        if settings.attention > 0:
            today = replace(user, popular=user.popular.after(items, past))
        clicked = np.zeros(len(past))
        for part in _parts(settings, judged, today, shown, size=size, asked=asked, rng=rng):
            policy = None if part.policy is None else part.policy + turn
            parts.append(replace(part, policy=policy))
            days.append(day)
            clicked += np.bincount(part.clicks.rows, weights=part.clicks.clicks, minlength=len(past))
        past += clicked
    logged = Logged(
        concatenate([part.clicks for part in parts]),
        np.repeat(np.array(days, dtype=np.int64), [len(part) for part in parts]),
        np.concatenate([part.policy for part in parts if part.policy is not None]),
        NAMES,
        np.concatenate([part.randomised for part in parts if part.randomised is not None]),
        tuple(f"f{column + 1}" for column in range(settings.features)),
    )
    return logged, asked


def _scores(settings: WorldSettings, judged: JudgedLists, rng: np.random.Generator) -> Float64:
    """Of the documents by each ranker of the engine, standardised, [rankers, documents]."""
    count = RANKERS if settings.policy in ("several", "changing") else 1
    initial = InitialRanker(share=0.03)
    scores = np.stack([initial.fit(judged, seed=int(rng.integers(2**31)))(judged.lists.features) for _ in range(count)])
    scores = (scores - scores.mean(axis=1, keepdims=True)) / np.maximum(scores.std(axis=1, keepdims=True), 1e-9)
    if settings.policy != "blocks":
        return np.asarray(scores, dtype=np.float64)
    order = np.lexsort((-scores[0], judged.lists.list_of))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - np.repeat(judged.lists.offsets[:-1], judged.lists.lengths)
    block = np.minimum(place // 5, 2)  # what lies below position 10 stays there
    within = np.where(block < 2, rng.random((RANKERS, len(order))), -place / (1 + place.max()))
    return np.asarray(within - 10.0 * block, dtype=np.float64)


def _parts(
    settings: WorldSettings,
    judged: JudgedLists,
    user: ComposedUser,
    scores: Float64,
    *,
    size: int,
    asked: Float64,
    rng: np.random.Generator,
) -> list[Logged]:
    """The searches of a day by ranker, and those in which chance had a hand."""
    parts: list[Logged] = []
    kind = settings.policy if settings.policy in ("swap", "first", "shuffle") else "none"
    chance = round(SHARE * size) if kind != "none" else 0
    sizes = np.bincount(rng.integers(0, len(scores), size - chance), minlength=len(scores)).tolist()
    for number, sessions in enumerate([*sizes, chance]):
        by_chance, place = number == len(sizes), number % len(sizes)
        log = SimulationSettings(intervention=Intervention(kind=kind if by_chance else "none"), merge="pattern")
        seed = int(rng.integers(2**31))
        made = simulate(judged, user, sessions=sessions, seed=seed, settings=log, scores=scores[place], shares=asked)
        clicks = made.clicks
        randomised = np.full(len(clicks.rows), by_chance and kind == "shuffle")
        if by_chance and kind == "first":
            randomised = clicks.positions == 1
        policy = np.full(len(clicks), place, dtype=np.int64)
        parts.append(Logged(clicks, None, policy, NAMES, randomised))
    return [part for part in parts if len(part)]
