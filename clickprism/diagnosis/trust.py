"""Trust: are clicks on poor documents likelier at the top than being seen there explains?

Where a click is relevance times observation, all documents lose the same share of their clicks as they move down the
page. With trust, P(click at k) = alpha_k r + beta_k (Agarwal et al. 2019, Vardasbi et al. 2020): a poor document owes
more of its clicks to the top, and loses more as it moves down. The affine fit is tested against the plain one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from clickprism.data.logged import Logged
from clickprism.diagnosis.beyond import Beyond, beyond, interval
from clickprism.diagnosis.clusters import FEWEST, p_words, shown
from clickprism.diagnosis.finding import Finding
from clickprism.diagnosis.linked import missing
from clickprism.errors import SettingError
from clickprism.types import Float64

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME: Final = "trust"
HIGHEST: Final = 2.0  # of the clicks at the first position: above it a curve says nothing
UNIT: Final = "of the clicks on first results that come from the place alone"
LUCK: Final = (
    " But the engine moves what is clicked, so documents that moved had luck before, and the share leans towards 0:"
    " this is the weakest of all verdicts."
)


@final
@dataclass(frozen=True)
class TrustSettings:
    """When trust counts.

    Attributes:
        level: of the test, one-sided; a p value below it is a sign.
        material: the least share of the clicks on first results that must come from trust.
        widest: an interval that reaches beyond this share leaves it unknown where the test found nothing.
    """

    level: float = 0.005
    material: float = 0.1
    widest: float = 0.6

    def __post_init__(self) -> None:
        for name in ("level", "material", "widest"):
            if not 0 < getattr(self, name) < 1:
                raise SettingError(name, getattr(self, name), "be between 0 and 1")


def trust(logged: Logged, *, settings: TrustSettings | None = None) -> Finding:
    """Whether documents of little relevance are clicked at the top for being there.

    Unknown where documents do not link positions, or too few moved to tell.
    """
    chosen = settings or TrustSettings()
    lacking = missing(shown(logged))
    if lacking is not None:
        return _unknown(*lacking)
    found = beyond(logged)
    if found.trust.queries < FEWEST:
        return _unknown(
            f"Only {found.trust.queries} queries or documents were clicked that stood at several positions.",
            "Collect more searches, or swap documents in some.",
        )
    return _judged(found, chosen)


def _judged(found: Beyond, settings: TrustSettings) -> Finding:
    from scipy.stats import norm

    made, p_value = found.trust, float(norm.sf(found.trust.z))
    ends = interval(made)
    share = float(np.clip(made.value, 0.0, 1.0))
    span = min(ends[0], 1.0), min(ends[1], 1.0)
    there = p_value < settings.level and made.value >= settings.material
    known = f"({span[0]:.0%} to {span[1]:.0%}, {p_words(p_value)})"
    if there:
        sentence = (
            f"Users trust the top: about {share:.0%} of the clicks on first results come from the place and not from"
            f" the document {known}."
        )
        advice = (
            "Correct clicks with the affine method (affine, or click groups), which takes away what trust adds;"
            " dividing by observation alone is not enough."
        )
    elif span[1] > settings.widest:
        return _unknown(
            f"Too few documents moved to be sure: trust may make {span[0]:.0%} to {span[1]:.0%} of the clicks on first"
            f" results ({p_words(p_value)}).",
            "Swap documents in more searches, the first result above all.",
            found,
        )
    else:
        gain = "gain no more" if share < settings.material else "do not surely gain more"
        sentence = (
            f"Poor documents {gain} from the top than good ones: trust makes {share:.0%}"
            f" of the clicks on first results {known}.{LUCK if found.heeds else ''}"
        )
        advice = (
            "Swap documents by chance in some searches, the first result above all, and ask again of those."
            if found.heeds
            else "Nothing to do: dividing clicks by observation is enough as far as trust goes."
        )
    return Finding(
        NAME,
        "present" if there else "absent",
        sentence,
        advice,
        number=share,
        unit=UNIT,
        interval=span,
        p_value=p_value,
        details=_details(found),
        table=_table(found),
        figure=_picture(found),
    )


def _credible(curve: Float64) -> Float64:
    """Without places that so few clicks link that they come out at far more than the first, [positions]."""
    return np.where(curve > HIGHEST, np.nan, curve)


def _details(found: Beyond) -> dict[str, object]:
    return {
        "z": found.trust.z,
        "queries": found.trust.queries,
        "documents": found.documents,
        "clicks": found.clicks,
        "compared_by": found.form,
        "engine_heeds_clicks": found.heeds,
        "added_by_position": found.by_position,
        "kept_by_poor": found.poor,
        "kept_by_good": found.good,
    }


def _table(found: Beyond) -> tuple[list[str], list[list[str]]]:
    rows = [
        [str(place + 1), *("" if np.isnan(each) else f"{each:.2f}" for each in curves), f"{max(added, 0.0) + 0.0:.3f}"]
        for place, (*curves, added) in enumerate(
            zip(_credible(found.poor), _credible(found.good), found.by_position, strict=True)
        )
    ]
    return ["position", "clicks kept by poor documents", "by good ones", "clicks that trust adds, once seen"], rows


def _picture(found: Beyond) -> Callable[[], Figure]:
    def draw() -> Figure:
        from clickprism.diagnosis.pictures import lines_by

        places = np.arange(1.0, len(found.poor) + 1)
        lines = {"poor documents": _credible(found.poor), "good documents": _credible(found.good)}
        return lines_by(places, lines, xlabel="position", ylabel="clicks kept, relative to the first position")

    return draw


def _unknown(why: str, remedy: str, found: Beyond | None = None) -> Finding:
    sentence = f"It cannot be told whether users trust the top. {why}"
    return Finding(NAME, "unknown", sentence, remedy, details={} if found is None else _details(found))
