"""Position curves from a log: every estimator by name, with intervals, or why the log cannot support it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Final, Protocol, TypeAlias, final

from clickprism.errors import DataError, SettingError, TrainingError
from clickprism.observation.bootstrap import Bootstrap, Sample
from clickprism.observation.counts import require_clicks
from clickprism.observation.curve import Curve, Support, cut
from clickprism.settings import choose
from clickprism.types import Clicks, Float64

Progress: TypeAlias = Callable[[str, int, int], None]


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
    """All curves of a log.

    Attributes:
        curves: by name of the estimator.
        refused: why the log cannot support the others, by name.
        sessions: of the log.
        truth: relative to position 1, where a simulation knows it.
    """

    curves: dict[str, Curve]
    refused: dict[str, str]
    sessions: int
    truth: Float64 | None = field(default=None)

    @property
    def best(self) -> Curve | None:
        """The curve to trust first: that of random order, else that of the most pairs; never click-through."""
        return next((self.curves[name] for name in ESTIMATORS if name in self.curves and name != "click-through"), None)


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
    progress: Progress | None = None,
) -> Curves:
    """The curves of several estimators, by default all; those that the log cannot support are named with the reason.

    Args:
        clicks: the log.
        estimators: which, with their settings.
        bootstrap: how intervals are made.
        depth: look at positions 1 to this only.
        truth: the true observation by position, to stand beside them.
        progress: is told an estimator that takes long, how many draws are done, and of how many.
    """
    require_clicks(clicks)
    bootstrap = bootstrap or Bootstrap()
    if depth is not None and depth < 2:
        raise SettingError("depth", depth, "be at least 2")
    running = ""

    def tell(done: int, draws: int) -> None:
        if progress is not None:
            progress(running, done, draws)

    sample = Sample(clicks if depth is None else cut(clicks, depth), bootstrap, progress=tell)
    curves, refused = {}, {}
    for estimator in _all() if estimators is None else estimators:
        running = estimator.name
        try:
            curves[estimator.name] = _curve(sample, estimator, bootstrap)
        except (DataError, TrainingError) as error:
            refused[estimator.name] = str(error)
    relative = None if truth is None or truth[0] == 0 else truth[:depth] / truth[0]
    return Curves(curves, refused, sample.clicks.sessions, relative)


def _all() -> list[Estimator]:
    return [choose(ESTIMATORS, name, path="estimator") for name in ESTIMATORS]


def _curve(sample: Sample, estimator: Estimator, bootstrap: Bootstrap) -> Curve:
    draws, support = estimator.estimate(sample)
    lower, upper = bootstrap.interval(draws[0], draws[1:])
    return Curve(estimator.name, draws[0], lower, upper, support, sample.unit if len(draws) > 1 else "")
