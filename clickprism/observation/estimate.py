"""Position curves from a log: every estimator by name, with intervals, or why the log cannot support it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Protocol, final

from clickprism._util.progress import Progress, no_progress
from clickprism.errors import DataError, SettingError, TrainingError
from clickprism.observation.bootstrap import Bootstrap, Sample
from clickprism.observation.counts import require_clicks
from clickprism.observation.curve import Curve, Support, cut, relative_error
from clickprism.settings import choose
from clickprism.types import Clicks, Float64


class Estimator(Protocol):
    """What makes a curve of a log."""

    name: ClassVar[str]

    def estimate(self, sample: Sample) -> tuple[Float64, Support]:
        """The curve in every draw, [draws, positions], and what it rests on; a `DataError` says what the log lacks."""


ESTIMATORS: Final = {
    "randomised": "clickprism.observation.randomised:Randomised",
    "allpairs": "clickprism.observation.harvest:AllPairs",
    "pbm": "clickprism.observation.model_curves:PositionModelCurve",
    "ubm": "clickprism.observation.model_curves:BrowsingModelCurve",
    "adjacent": "clickprism.observation.swaps:AdjacentSwaps",
    "pivot": "clickprism.observation.swaps:PivotSwaps",
    "click-through": "clickprism.observation.randomised:ClickThrough",
}


@final
@dataclass(frozen=True, eq=False)
class Curves:
    """The position curves of a log.

    Attributes:
        curves: Curves by name of the estimator.
        unsupported: Why the log does not support the other estimators, by name.
        sessions: Number of sessions.
        truth: True observation relative to position 1, if a simulation recorded it.
        best: Name of the curve to prefer: randomised, otherwise that of the most pairs; never click-through.
    """

    curves: dict[str, Curve]
    unsupported: dict[str, str]
    sessions: int
    truth: Float64 | None = field(default=None)
    best: str | None = field(init=False)

    def __post_init__(self) -> None:
        best = next((name for name in ESTIMATORS if name in self.curves and name != "click-through"), None)
        object.__setattr__(self, "best", best)


def estimate_curve(clicks: Clicks, estimator: Estimator, *, bootstrap: Bootstrap | None = None) -> Curve:
    """The position curve of a log by one estimator, with intervals; a `DataError` if the log cannot support it.

    >>> import numpy as np
    >>> from clickprism.observation.harvest import AllPairs
    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
    >>> log = Clicks(lists, np.array([0, 2, 4]), np.array([0, 1, 1, 0]), np.array([1, 2, 1, 2], np.int32),
    ...     np.array([80, 20, 40, 40]), np.array([100, 100]))
    >>> estimate_curve(log, AllPairs(), bootstrap=Bootstrap(resamples=0)).values.round(6).tolist()
    [1.0, 0.5]
    """
    require_clicks(clicks)
    bootstrap = bootstrap or Bootstrap()
    return _curve(Sample(clicks, bootstrap), estimator, bootstrap)


def estimate_curves(
    clicks: Clicks,
    estimators: Iterable[Estimator] | None = None,
    *,
    bootstrap: Bootstrap | None = None,
    depth: int | None = None,
    truth: Float64 | None = None,
    progress: Progress = no_progress,
) -> Curves:
    """The curves of several estimators, by default all; those that the log cannot support are named with the reason.

    Args:
        clicks: the log.
        estimators: which, with their settings.
        bootstrap: how intervals are made.
        depth: look at positions 1 to this only.
        truth: the true observation by position, to stand beside them.
        progress: receives the number of resamples done, of how many, and the name of the estimator.
    """
    require_clicks(clicks)
    bootstrap = bootstrap or Bootstrap()
    if depth is not None and depth < 2:
        raise SettingError("depth", depth, "be at least 2")
    running = ""

    def report(done: int, total: int | None = None, text: str = "") -> None:
        progress(done, total, text or f"resamples of {running}")

    sample = Sample(clicks if depth is None else cut(clicks, depth), bootstrap, progress=report)
    relative = None if truth is None or truth[0] == 0 else truth[:depth] / truth[0]
    curves, unsupported = {}, {}
    for estimator in _all() if estimators is None else estimators:
        running = estimator.name
        try:
            curve = _curve(sample, estimator, bootstrap)
        except (DataError, TrainingError) as reason:
            unsupported[estimator.name] = str(reason)
            continue
        error = None if relative is None else relative_error(curve.values, relative)
        curves[estimator.name] = replace(curve, error=error)
    return Curves(curves, unsupported, sample.clicks.sessions, relative)


def _all() -> list[Estimator]:
    return [choose(ESTIMATORS, name, path="estimator") for name in ESTIMATORS]


def _curve(sample: Sample, estimator: Estimator, bootstrap: Bootstrap) -> Curve:
    draws, support = estimator.estimate(sample)
    lower, upper = bootstrap.interval(draws[0], draws[1:])
    return Curve(estimator.name, draws[0], lower, upper, support, sample.unit if len(draws) > 1 else "")
