"""What is run: the methods under the names of the paper, the measures, the sizes, each in one table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Family: TypeAlias = Literal["estimator", "approximation", "competitor", "mixture", "engine", "bound"]
CUTOFFS = (2, 4, 6, 10, 20)
LEADING = "DCG(exp)@4"
MEASURES = (*(f"DCG(exp)@{k}" for k in CUTOFFS), *(f"ERR@{k}" for k in CUTOFFS))
DATA = ("embedded", "nfcorpus")
TUNED = "nfcorpus_tuned"  # the same with a language model that is trained on first-slot clicks
BASE = "no_correction"  # of Table 2
ONLINE = "base_mix"  # of Table 3


@dataclass(frozen=True)
class Candidate:
    """A method of the comparison.

    Attributes:
        title: as the paper, or we, call it.
        family: an offline "estimator" (§3 to 5), an "approximation" (§6.2), a "competitor" on the representation of
            query and document or a "mixture" of that and the click vector (§7.3); the "engine" itself; or a "bound",
            which knows the truth of the simulation.
        settings: of the method.
        paper: whether the paper has it in Table 2.
    """

    title: str
    family: Family
    settings: dict[str, Any] = field(default_factory=dict)
    paper: bool = False


EQ_4: dict[str, Any] = {"beta_1": 0.65}
CANDIDATES: dict[str, Candidate] = {
    "production": Candidate("the production ranker, last version", "engine"),
    "ipw": Candidate("IPW, of counts", "estimator"),
    "affine": Candidate("affine", "estimator"),
    "imputation": Candidate("imputation", "estimator"),
    "doubly_robust": Candidate("doubly robust, Eq. 4", "estimator", EQ_4),
    "doubly_robust_behaviour": Candidate(
        "doubly robust, e from behaviour", "estimator", {**EQ_4, "examined": "behaviour"}
    ),
    "shrunk": Candidate("shrunk towards the imputation", "estimator"),
    "no_correction": Candidate("No-correction", "competitor", paper=True),
    "pal": Candidate("PAL", "competitor", paper=True),
    "tal": Candidate("TAL", "competitor", paper=True),
    "ipw_learned": Candidate("IPW", "competitor", paper=True),
    "display_filtering": Candidate("Display Filtering", "competitor", paper=True),
    "rand": Candidate("Rand", "competitor", paper=True),
    "base_mix": Candidate("weak features + clicks, Display Filtering", "mixture"),
    "vanilla_mix_no_correction": Candidate("Vanilla-Mix + No-correction", "mixture", paper=True),
    "vanilla_mix_display_filtering": Candidate("Vanilla-Mix + Display Filtering", "mixture", paper=True),
    "vanilla_mix_rand": Candidate("Vanilla-Mix + Rand", "mixture", paper=True),
    "approximate_affine": Candidate("Approximated Affine", "approximation", paper=True),
    "approximate_dr": Candidate("Approximated Doubly Robust, our default", "approximation", paper=True),
    "approximate_dr_reward": Candidate("the same, Eq. 5", "approximation", {"form": "reward"}),
    "bound_clicks": Candidate("bound: posterior of clicks", "bound", {"imputed": False}),
    "bound": Candidate("bound: posterior, with imputation", "bound", {"imputed": True}),
}
TABLE_4 = ("approximate_affine", "imputation", "approximate_dr")
TABLE_3 = ("vanilla_mix_display_filtering", "approximate_dr")
SHARES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1)
COSTS = ("imputation", "shrunk", "approximate_dr")  # whose gain by exploration is reported


@dataclass(frozen=True)
class Bar:
    """What must hold: a method is above another by so much, in a bucket, of the leading measure.

    Attributes:
        method: that is to be better.
        other: than this one.
        bucket: where.
        least: the difference in percent of the other, at least.
    """

    method: str
    other: str
    bucket: str
    least: float


BARS = (
    Bar("shrunk", "affine", "head", -1.0),
    *(Bar("shrunk", other, bucket, 0.0) for bucket in ("middle", "tail") for other in ("affine", "imputation")),
    Bar("approximate_dr", "imputation", "tail", 5.0),
    Bar("approximate_dr", "approximate_affine", "tail", 15.0),
    Bar("approximate_dr", "approximate_affine", "head", -1.5),
)


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes:
        queries: of head, middle and tail.
        seeds: draws of the frequencies, rankers, clicks and weights at the start.
        cost_seeds: how many of them the report on exploration has.
        shares: of searches that are explored, in that report.
        epochs: of networks, at most.
        searches: of the log that the examination model is trained on.
        visits: searches of the simulated A/B test.
    """

    queries: tuple[int, int, int] = (100, 300, 1000)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    cost_seeds: int = 2
    shares: tuple[float, ...] = SHARES
    epochs: int = 30
    searches: int = 30_000
    visits: int = 200_000


SIZES = {
    "quick": Size(
        queries=(60, 150, 500),
        seeds=(0, 1),
        cost_seeds=1,
        shares=(0.0, 0.01, 0.05, 0.1),
        epochs=30,
        searches=8_000,
        visits=50_000,
    ),
    "standard": Size(),
    "full": Size(queries=(200, 600, 3000), cost_seeds=5, epochs=100, searches=100_000, visits=500_000),
}
