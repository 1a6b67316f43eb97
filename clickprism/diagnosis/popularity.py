"""Popularity: do past clicks decide what is shown, or what is clicked, beyond what documents deserve?

Both are asked of changes from day to day, so that what a document deserves drops out.

- The engine: a document that was clicked more today than before *at the same position* had luck. If it stands higher
  tomorrow, beyond what others at its position do, the engine heeds clicks. What a ranker does for other reasons has
  nothing to do with that luck.
- The users: at the same position, below the same results, click rates of two days next to each other differ by chance
  and by what the day does to all at that position. If documents with many clicks *on the other days* gain or lose
  against those with few, users heed past clicks. A site where all is long settled shows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

import numpy as np

from clickprism.data.logged import Logged
from clickprism.diagnosis.clusters import FEWEST, NORMAL_95, Evidence, by_query, evidence, p_words, shown, units
from clickprism.diagnosis.days import Daily, daily, demeaned, heights
from clickprism.diagnosis.finding import Finding
from clickprism.errors import SettingError
from clickprism.types import Float64

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENOUGH: Final = 12.0  # queries in effect; else documents are taken to be independent
NAME: Final = "popularity"
UNITS: Final = {
    "engine": "correlation of luck with clicks on one day with the move up the page on the next",
    "users": "change of the click rate at one place in a day, of documents clicked twice as often on other days",
}


@final
@dataclass(frozen=True)
class PopularitySettings:
    """When a response to past clicks counts.

    Attributes:
        level: of each of the two tests; a p value below it is a sign.
        material: the least size, of either.
    """

    level: float = 0.005
    material: float = 0.005

    def __post_init__(self) -> None:
        for name in ("level", "material"):
            if not 0 < getattr(self, name) < 1:
                raise SettingError(name, getattr(self, name), "be between 0 and 1")


@final
@dataclass(frozen=True, eq=False)
class Response:
    """What follows on clicks.

    Attributes:
        test: whether anything does, by queries.
        size: how much follows on how much, in the unit that `engine_response` and `user_response` say.
        interval: of the size, 95%, by queries.
        by_day: what follows from each day to the next, as a z value, [days less some].
    """

    test: Evidence
    size: float
    interval: tuple[float, float]
    by_day: Float64


def popularity(logged: Logged, *, settings: PopularitySettings | None = None) -> Finding:
    """Whether past clicks move documents up the page, or draw clicks by themselves.

    Unknown without days: at least two for users, three for the engine.
    """
    chosen, logged = settings or PopularitySettings(), shown(logged)
    if logged.days is None:
        return _unknown("The log does not tell when searches were made.", "Log the day of each search.")
    if len(logged) == 0 or len(np.unique(logged.days)) < 3:
        return _unknown("The log has fewer than three days.", "Collect clicks for three days or more.")
    if int(logged.clicks.clicks.sum()) == 0 or logged.clicks.weights is not None:
        return _unknown("The log has no clicks as they were made.", "Give raw clicks.")
    engine, users = engine_response(logged), user_response(logged)
    if max(engine.test.queries, users.test.queries) < FEWEST:
        return _unknown(
            "Hardly any document stood at one position on two days.", "Collect more searches of the same queries."
        )
    return _judged(engine, users, chosen)


def engine_response(logged: Logged) -> Response:
    """Does luck with clicks today move a document up tomorrow?

    Luck: the click rate of today less that of all days before at the same position, as the day and position have it.
    The size is the correlation of luck with the move.
    """
    days = daily(logged, prefix=False)
    height, asked = heights(logged)
    size, count = days.clicks.shape
    scores = np.zeros((size, max(count - 2, 1)))
    norms = np.zeros(2)
    for today in range(1, count - 1):
        luck, weight, _ = _luck(days, range(today), [today])
        weight = np.where(asked[days.query, today + 1] > 0, weight, 0.0)
        move = demeaned(days.position, weight, (height[:, today + 1] - height[:, today])[days.row])
        scores[:, today - 1] = weight * luck * move
        norms += (weight * luck**2).sum(), (weight * move**2).sum()
    by = by_query(units(days.query, days.row, days.shown.sum(axis=1), enough=ENOUGH), scores)
    return _response(by, by.sum(axis=1), float(np.sqrt(norms.prod())))


def user_response(logged: Logged) -> Response:
    """Do click rates at the same place change from day to day by how often documents are clicked on other days?

    Clicks of all other days are tried, and those of the days before alone; what stands further down counts more, as
    there is more for attention to add. The size is the change of the click rate, as a share of it, of a document
    that is clicked twice as often on other days, from the day of the strongest change to the next.
    """
    days = daily(logged, prefix=True)
    size, count = days.clicks.shape
    of_document = np.stack([np.bincount(days.row, weights=column) for column in days.clicks.T], axis=1)
    scores = np.zeros((2, size, count - 1))
    norms = np.zeros(count - 1)
    depth = np.log2(1.0 + days.position)
    for today in range(count - 1):
        luck, weight, rate = _luck(days, [today], [today + 1])
        others = np.delete(of_document, [today, today + 1], axis=1).sum(axis=1)
        for place, clicked in enumerate((others, of_document[:, :today].sum(axis=1))):
            past = demeaned(days.position, weight, np.log2(1.0 + clicked)[days.row])
            scores[place, :, today] = weight * luck * past * depth
            if place == 0:
                norms[today] = (weight * rate * past**2 * depth).sum()
    unit = units(days.query, days.row, days.shown.sum(axis=1), enough=ENOUGH)
    by, before = (by_query(unit, each) for each in scores)
    spread = np.sqrt((by**2).sum(axis=0))
    strongest = int(np.argmax(np.abs(by.sum(axis=0)) / np.where(spread > 0, spread, np.inf)))
    response = _response(by, by[:, strongest], float(norms[strongest]))
    return replace(response, test=evidence(np.concatenate([by, before], axis=1)))


def _luck(days: Daily, before: range | list[int], after: list[int]) -> tuple[Float64, Float64, Float64]:
    """The click rate after less that before, each document at its place, the weight of that, and the rate, [cells].

    What the days do to all documents at a position is taken out, as a factor.
    """
    shown_one, shown_other = days.shown[:, before].sum(axis=1), days.shown[:, after].sum(axis=1)
    one = days.clicks[:, before].sum(axis=1) / np.maximum(shown_one, 1.0)
    other = days.clicks[:, after].sum(axis=1) / np.maximum(shown_other, 1.0)
    weight = shown_one * shown_other / np.maximum(shown_one + shown_other, 1.0)
    sums = [np.bincount(days.position, weights=weight * rate) for rate in (one, other)]
    factor = np.divide(sums[1], sums[0], out=np.ones_like(sums[0]), where=sums[0] > 0)
    luck = np.where(weight > 0, other - factor[days.position] * one, 0.0)
    return luck, weight, (shown_one * one + shown_other * other) / np.maximum(shown_one + shown_other, 1.0)


def _response(scores: Float64, sized: Float64, norm: float) -> Response:
    spread = np.sqrt((scores**2).sum(axis=0))
    by_day = np.divide(scores.sum(axis=0), spread, out=np.zeros(scores.shape[1]), where=spread > 0)
    scale = 1 / norm if norm > 0 else 0.0
    size, error = scale * float(sized.sum()), NORMAL_95 * scale * float(np.sqrt((sized**2).sum()))
    return Response(evidence(scores), size, (size - error, size + error), by_day)


def _judged(engine: Response, users: Response, settings: PopularitySettings) -> Finding:
    engine_does = engine.test.p_value < settings.level and engine.size >= settings.material
    users_do = users.test.p_value < settings.level and abs(users.size) >= settings.material
    if engine_does:
        words = "The engine heeds past clicks: what was clicked by luck one day stands higher the next"
    elif users_do:
        words = "Users heed past clicks: at one place, click rates change by how often a document is clicked"
    else:
        words = "Past clicks move nothing: neither the engine nor users answer to them from day to day"
    first = users if users_do and not engine_does else engine
    advice = (
        "Do not read past clicks as relevance: cap or discount them in the ranker, show new documents by chance now and"
        " then, and correct clicks for observation before they are counted."
        if engine_does or users_do
        else "Nothing to do. What is long settled shows no change; try it again after a launch, or with new documents."
    )
    answers = {
        "engine": "yes" if engine_does else "no",
        "users": "not told apart from the engine" if engine_does else "yes" if users_do else "no",
    }
    both = {"engine": engine, "users": users}
    return Finding(
        NAME,
        "present" if engine_does or users_do else "absent",
        f"{words} (engine: {p_words(engine.test.p_value)}; users: {p_words(users.test.p_value)}).",
        advice,
        number=first.size,
        unit=UNITS["engine" if first is engine else "users"],
        interval=first.interval,
        p_value=min(1.0, 2 * min(engine.test.p_value, users.test.p_value)),
        details={name: _plain(each, answers[name]) for name, each in both.items()},
        table=(
            ["who", "answers", "size", "95%", "test"],
            [
                [name, answers[name], f"{each.size:+.4f}", _span(each), p_words(each.test.p_value)]
                for name, each in both.items()
            ],
        ),
        figure=_picture(engine, users),
    )


def _plain(response: Response, answers: str) -> dict[str, object]:
    return {
        "answers": answers,
        "size": response.size,
        "interval": response.interval,
        "test": response.test._asdict(),
        "z_by_day": response.by_day,
    }


def _span(response: Response) -> str:
    return f"{response.interval[0]:+.4f} to {response.interval[1]:+.4f}"


def _picture(engine: Response, users: Response) -> Callable[[], Figure]:
    def draw() -> Figure:
        from clickprism.diagnosis.pictures import lines_by

        days = np.arange(1.0, len(users.by_day) + 1)
        padded = np.concatenate([np.full(len(users.by_day) - len(engine.by_day), np.nan), engine.by_day])
        return lines_by(
            days,
            {"engine": padded, "users": users.by_day},
            xlabel="from day to the next",
            ylabel="answer to clicks, in standard errors",
            low=None,
        )

    return draw


def _unknown(why: str, remedy: str) -> Finding:
    return Finding(NAME, "unknown", f"It cannot be told whether past clicks decide what is shown. {why}", remedy)
