"""Position: are documents seen less further down the page, and do the estimators that the log supports agree?

Click-through falls down any page, as good documents stand on top. Observation is what is left when the same document is
compared with itself at several positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from clickprism._util.tables import to_plain
from clickprism.data.logged import Logged
from clickprism.diagnosis.beyond import daily_shape, heeds_clicks
from clickprism.diagnosis.clusters import FEWEST, NORMAL_95, by_query, one_thread, p_words, shown
from clickprism.diagnosis.families import thinned
from clickprism.diagnosis.finding import Finding
from clickprism.diagnosis.lines import lines_of
from clickprism.diagnosis.linked import RARE, missing
from clickprism.diagnosis.shape import plain_shape
from clickprism.diagnosis.sight import by_position, standardised
from clickprism.errors import SettingError
from clickprism.observation.curve import Curve, Support, cut, sums
from clickprism.types import Bool, Clicks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME: Final = "position"
UNIT: Final = "of what is seen at the first position is seen further down, in the mean"
MOVED, RAW = "moved", "click-through"
NAMES: Final = {
    "randomised": "random order",
    MOVED: "moved documents",
    "allpairs": "all pairs",
    "adjacent": "neighbours",
    "pbm": "pbm",
    RAW: RAW,
}


@final
@dataclass(frozen=True)
class PositionSettings:
    """When the position counts.

    Attributes:
        level: of the test, one-sided; a p value below it is a sign.
        material: the least fall of observation below the first position that matters, in the mean.
        widest: half of an interval wider than this leaves it unknown where the test found nothing.
        apart: estimators disagree if they differ by more than this, as a share, in the mean over positions.
        resamples: of the bootstrap of the estimators from pairs.
        most_sessions: the position-based model is fitted on so many sessions, drawn by chance, at most.
        depth: the curves are for so many positions at most.
        seed: of the draws.
    """

    level: float = 0.01
    material: float = 0.1
    widest: float = 0.35
    apart: float = 0.2
    resamples: int = 200
    most_sessions: int = 60_000
    depth: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("level", "material", "widest", "apart"):
            if not 0 < getattr(self, name) < 1:
                raise SettingError(name, getattr(self, name), "be between 0 and 1")
        if self.depth < 2:
            raise SettingError("depth", self.depth, "be at least 2")
        if self.resamples < 2 or self.most_sessions < 1:
            raise SettingError("resamples", self.resamples, "be at least 2, and most_sessions at least 1")


@final
@dataclass(frozen=True, eq=False)
class Fall:
    """How observation falls down the page.

    Attributes:
        curve: by documents that moved, with 95% intervals, relative to the first position.
        mean: of it below the first position.
        half: half of the interval of that.
        z: of the fall along the logarithm of the position; positive where less is seen further down.
        queries: that had something to say.
    """

    curve: Curve
    mean: float
    half: float
    z: float
    queries: int


def position(logged: Logged, *, settings: PositionSettings | None = None) -> Finding:
    """Whether observation falls down the page; unknown where documents do not link positions."""
    chosen, logged = settings or PositionSettings(), shown(logged)
    lacking = missing(logged)
    if lacking is not None:
        return _unknown(logged, chosen, *lacking)
    with one_thread():
        fall = fall_of(logged)
    if fall.queries < FEWEST:
        why = f"Only {fall.queries} queries or documents were clicked that stood at several positions."
        return _unknown(logged, chosen, why, "Collect more searches, or swap documents in some.")
    curves, refused = curves_of(logged, chosen)
    return _judged(fall, {MOVED: fall.curve, **curves}, refused, chosen)


def fall_of(logged: Logged) -> Fall:
    """The curve of documents that moved, by queries; where the engine heeds clicks, by what was expected of them."""
    clicks = logged.clicks
    sight = by_position(clicks)
    if heeds_clicks(logged):
        shape, point = daily_shape(logged, sight, standardised(clicks.lists.features))
        free = shape.free(own=np.zeros(0, dtype=np.bool_), trust=False)
    else:
        shape = plain_shape(lines_of(clicks, sight))
        free = shape.free(own=np.zeros(0, dtype=np.bool_), trust=False)
        point = shape.solve(free)
    scores, bend = shape.scores(point, np.zeros_like(free), free)
    summed = by_query(shape.lines.units(), scores)
    turn = np.linalg.pinv(bend)
    spread = turn @ (summed.T @ summed) @ turn.T
    places = np.flatnonzero(free)
    kept = clicks.positions <= shape.places
    seen = np.bincount(clicks.positions[kept] - 1, weights=clicks.list_impressions[kept])
    common = seen[places] >= RARE * seen.max()
    below, error = point[places], np.sqrt(np.diagonal(spread))
    values, lower, upper = (np.full(shape.places, np.nan) for _ in range(3))
    values[0] = lower[0] = upper[0] = 1.0
    values[places] = np.exp(below)
    lower[places], upper[places] = np.exp(below - NORMAL_95 * error), np.exp(below + NORMAL_95 * error)
    moved = shape.lines.moved()
    impressions, clicked = (sums(moved.places, each, shape.places) for each in (moved.shown, moved.clicks))
    support = Support(len(np.unique(moved.rows)), impressions, clicked)
    mean = float(np.exp(below[common]).mean()) if common.any() else 1.0
    pull = np.where(common, np.exp(below), 0.0) / max(int(common.sum()), 1)
    down = np.log(places + 1.0)
    heft = np.linalg.pinv(spread, rcond=1e-9, hermitian=True) @ down
    total = float(np.sqrt(max(float(down @ heft), 1e-300)))
    return Fall(
        Curve(MOVED, values, lower, upper, support, "query"),
        mean,
        NORMAL_95 * float(np.sqrt(max(float(pull @ spread @ pull), 0.0))),
        -float(below @ heft) / total,
        int((summed != 0).any(axis=1).sum()),
    )


def falls_much(fall: Fall, settings: PositionSettings) -> bool:
    """Whether observation falls: by the test, and by as much as matters."""
    from scipy.stats import norm

    return float(norm.sf(fall.z)) < settings.level and fall.mean <= 1 - settings.material


def curves_of(logged: Logged, settings: PositionSettings) -> tuple[dict[str, Curve], dict[str, str]]:
    """The curves of the other estimators, and why the log cannot support the rest."""
    from clickprism.observation.bootstrap import Bootstrap
    from clickprism.observation.estimate import Curves, Estimator, estimate_curves
    from clickprism.observation.harvest import AllPairs
    from clickprism.observation.model_curves import PositionModelCurve
    from clickprism.observation.randomised import ClickThrough, Randomised
    from clickprism.observation.swaps import AdjacentSwaps

    depth = min(settings.depth, logged.clicks.max_position)

    def made(clicks: Clicks, estimators: list[Estimator], resamples: int) -> Curves:
        bootstrap = Bootstrap(resamples=resamples, seed=settings.seed)
        return estimate_curves(cut(clicks, depth), estimators, bootstrap=bootstrap)

    few = min(1.0, settings.most_sessions / logged.clicks.sessions)
    drawn = np.random.default_rng(settings.seed).binomial(logged.clicks.impressions, few).astype(np.int64)
    part = thinned(logged.clicks, drawn) if few < 1 and logged.clicks.are_patterns else logged.clicks
    found = [made(logged.clicks, [AllPairs(), AdjacentSwaps(), ClickThrough()], settings.resamples)]
    if len(part):
        found.append(made(part, [PositionModelCurve()], 0))
    refused = {"randomised": "the log has no lists that chance put in order, by its own word"}
    whole = _shuffled(logged)
    if whole.any():
        found.append(made(logged.clicks.take(whole), [Randomised(least_p=0.0)], settings.resamples))
        refused = {}
    curves = {name: each.curves[name] for name in NAMES for each in found if name in each.curves}
    return curves, {**refused, **{name: why for each in found for name, why in each.unsupported.items()}}


def _shuffled(logged: Logged) -> Bool:
    """The ranked lists of which chance filled every slot, [ranked lists]."""
    if logged.randomised is None:
        return np.zeros(len(logged), dtype=np.bool_)
    return np.asarray(np.logical_and.reduceat(logged.randomised, logged.clicks.offsets[:-1]), dtype=np.bool_)


def difference(one: Curve, other: Curve) -> float:
    """By how much the second differs from the first, as a share of it, in the mean over positions both know.

    >>> nothing = Support(0, np.zeros(2), np.zeros(2))
    >>> first, second = (Curve("", np.array([1.0, v]), np.ones(2), np.ones(2), nothing) for v in (0.5, 0.4))
    >>> round(difference(first, second), 3)
    0.223
    """
    size = min(len(one), len(other))
    known = np.isfinite(one.values[:size]) & np.isfinite(other.values[:size])
    known &= (one.values[:size] > 0) & (other.values[:size] > 0)
    known[0] = False
    if not known.any():
        return math.nan
    return float(np.abs(np.log(other.values[:size][known] / one.values[:size][known])).mean())


def _judged(fall: Fall, curves: dict[str, Curve], refused: dict[str, str], settings: PositionSettings) -> Finding:
    from scipy.stats import norm

    p_value = float(norm.sf(fall.z))
    ends = max(fall.mean - fall.half, 0.0), fall.mean + fall.half
    there = falls_much(fall, settings)
    apart = {name: difference(fall.curve, each) for name, each in curves.items() if name not in (MOVED, RAW)}
    known = f"({ends[0]:.0%} to {ends[1]:.0%}, {p_words(p_value)})"
    if there:
        sentence = (
            f"Users see less further down: of what is seen at the first position, {fall.mean:.0%} is seen below it in"
            f" the mean {known}. {_agreement(apart, settings)}"
        )
        advice = (
            "Correct clicks for the position before anything is learned from them. The curve of moved documents is"
            " what the others are measured by; where they differ, see trust, coupling and interaction."
        )
    elif fall.half > settings.widest:
        return Finding(
            NAME,
            "unknown",
            "It cannot be told whether users see less further down: too few documents moved.",
            "Swap documents in more searches.",
            details=_details(curves, refused, apart),
            table=_table(curves),
        )
    else:
        sentence = (
            f"Users see as much further down as on top: {fall.mean:.0%} of it {known}. Clicks fall down the page only"
            f" as far as documents do. {_agreement(apart, settings)}"
        )
        advice = "Nothing to do: clicks can be read as they are, as far as the position goes."
    return Finding(
        NAME,
        "present" if there else "absent",
        sentence,
        advice,
        number=fall.mean,
        unit=UNIT,
        interval=ends,
        p_value=p_value,
        details=_details(curves, refused, apart),
        table=_table(curves),
        figure=_picture(curves),
    )


def _agreement(apart: dict[str, float], settings: PositionSettings) -> str:
    told = {name: value for name, value in apart.items() if math.isfinite(value)}
    if not told:
        return "No other estimator can be asked."
    far = [name for name, value in told.items() if value > settings.apart]
    if not far:
        return f"The estimators agree within {max(told.values()):.0%}."
    worst = max(far, key=lambda name: told[name])
    return f"The estimators do not agree: {NAMES[worst]} is off moved documents by {told[worst]:.0%}."


def _details(curves: dict[str, Curve], refused: dict[str, str], apart: dict[str, float]) -> dict[str, object]:
    return {"curves": to_plain(curves), "refused": refused, "apart": apart}


def _table(curves: dict[str, Curve]) -> tuple[list[str], list[list[str]]]:
    depth = max(len(each) for each in curves.values())

    def cell(curve: Curve, place: int) -> str:
        if place >= len(curve) or not np.isfinite(curve.values[place]):
            return ""
        ends = "" if not np.isfinite(curve.lower[place]) else f" ({curve.lower[place]:.2f}-{curve.upper[place]:.2f})"
        return f"{curve.values[place]:.2f}{ends}"

    ordered = [name for name in NAMES if name in curves]
    rows = [[str(place + 1), *(cell(curves[name], place) for name in ordered)] for place in range(depth)]
    return ["position", *(NAMES[name] for name in ordered)], rows


def _picture(curves: dict[str, Curve]) -> Callable[[], Figure]:
    def draw() -> Figure:
        from clickprism.diagnosis.pictures import lines_by

        depth = max(len(each) for each in curves.values())
        lines = {
            NAMES[name]: np.append(curves[name].values, np.full(depth - len(curves[name]), np.nan))
            for name in NAMES
            if name in curves
        }
        ends = {NAMES[MOVED]: (curves[MOVED].lower, curves[MOVED].upper)} if MOVED in curves else {}
        return lines_by(
            np.arange(1.0, depth + 1), lines, xlabel="position", ylabel="relative to the first", intervals=ends
        )

    return draw


def _unknown(logged: Logged, settings: PositionSettings, why: str, remedy: str) -> Finding:
    """With click-through by position, which can be told all the same."""
    from clickprism.observation.bootstrap import Bootstrap
    from clickprism.observation.estimate import estimate_curves
    from clickprism.observation.randomised import ClickThrough

    curves: dict[str, Curve] = {}
    if len(logged) and logged.clicks.max_position > 1 and logged.clicks.weights is None:
        part = cut(logged.clicks, settings.depth)
        bootstrap = Bootstrap(resamples=settings.resamples, seed=settings.seed)
        curves = estimate_curves(part, [ClickThrough()], bootstrap=bootstrap).curves
    fallen = ""
    if RAW in curves:
        last = curves[RAW].values[-1]
        fallen = f" Click-through falls to {last:.0%} at position {len(curves[RAW])}: less seen, or less relevant."
    return Finding(
        NAME,
        "unknown",
        f"It cannot be told whether users see less further down. {why}{fallen}",
        remedy,
        details=_details(curves, {}, {}),
        table=_table(curves) if curves else None,
        figure=_picture(curves) if curves else None,
    )
