"""What is run: the data, the sizes, and the methods under the names of the paper, each in one table."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from reproduce.common.expected import Expected

MEASURES = ("nDCG(exp)@10", "nDCG(exp)@1", "nDCG(exp)@3", "nDCG(exp)@5", "ARP")
LEADING = MEASURES[0]
TABLE_COUPLING = 0.1
FOLDS = {"mq2008": (1, 2, 3, 4, 5)}
DATA = ("embedded", "mq2008", "yahoo", "istella-s")
PAPER_NAMES = {"linear": "Linear", "mlp": "DNN"}

Source: TypeAlias = Literal["log", "effect", "true effect", "true observation"]
Tuned: TypeAlias = Literal["none", "both", "penalty", "drop", "nothing"]


@dataclass(frozen=True)
class Candidate:
    """A method of the comparison.

    Attributes:
        title: as the paper, or we, call it.
        method: the name in clickprism.
        tuned: which of the tuned settings of LBD it takes: "both", the "penalty" (lambda) without dropping, the "drop"
            (t) without penalty, or "nothing", with both at 0; "none" where it has no such settings.
        source: what it learns from: the "log"; the log corrected by the "effect" of positions, estimated on swaps, or
            by the "true effect", o_k(x) / o_1(x); or the log weighted by the "true observation", 1 / o_k(x).
        role: "ceiling" is told what no log tells; "baseline" and "ours" are compared; "intervention" needs swaps;
            "forced" is a variant of ours.
        passes: how often it goes over the log, as a share of what the others do: sessions clicked differently are
            different lists to PairDebias, which are many times more.
        settings: of the method, beside those that are tuned.
        learning_rate: as published.
        claimed: whether a claim is made of it; then it is run with every seed, else with the first `Size.others`.
    """

    title: str
    method: str
    tuned: Tuned = "none"
    source: Source = "log"
    role: Literal["ceiling", "baseline", "ours", "intervention", "forced"] = "baseline"
    passes: float = 1.0
    settings: dict[str, Any] = field(default_factory=dict)
    learning_rate: float = 0.05
    claimed: bool = False


def _only(*, penalties: list[float], curve: bool) -> dict[str, Any]:
    """Settings of lbd that leave it no choice."""
    return {"observation": {"penalties": penalties, "curve": curve}}


ULTRA_DLA = {"max_weight": 0.0, "observation_rate": 1.0, "link": "elu"}  # DualLearning.ultra()
ULTRA_EM = {"form": "drawn", "step": 0.05, "centred": False}  # RegressionEM.ultra()
TABLE_3 = {"penalty": 100.0, "drop": 0.1}  # of the DNN at coupling .1, on both data sets
PUBLISHED = {  # lambda and t of Table 3 on Yahoo!, by ranker and coupling; of the linear ranker it has .1 only
    **{("mlp", coupling): (100.0, 0.1) for coupling in (0.0, 0.1, 0.2)},
    **{("mlp", coupling): (1.0, t) for coupling, t in ((0.3, 0.1), (0.4, 0.3), (0.5, 0.3), (0.6, 0.4))},
    **{("linear", coupling): (10_000.0, 0.1) for coupling in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)},
}

CANDIDATES: dict[str, Candidate] = {
    "labels": Candidate("Labelled data", "labels", role="ceiling"),
    "dla": Candidate("DLA (ULTRA)", "dla", settings=ULTRA_DLA, claimed=True),
    "dla-default": Candidate("DLA, our default", "dla", claimed=True),
    "vectorization": Candidate("Vectorization", "vectorization"),
    "pair_debias": Candidate("PairDebias (ULTRA)", "pair_debias", passes=0.1, learning_rate=0.005),
    "regression_em": Candidate("RegressionEM (ULTRA)", "regression_em", settings=ULTRA_EM),
    "click": Candidate("Click data", "click", claimed=True),
    "unlimited": Candidate("Unlimited", "lbd_paper", tuned="nothing", role="ours"),
    "lbd-lips": Candidate("LBD-Lips", "lbd_paper", tuned="penalty", role="ours"),
    "lbd-ber": Candidate("LBD-Ber", "lbd_paper", tuned="drop", role="ours"),
    "lbd_paper": Candidate("LBD, as printed", "lbd_paper", tuned="both", role="ours", claimed=True),
    "lbd_code": Candidate("LBD, authors' code", "lbd_code", role="ours", settings=TABLE_3, claimed=True),
    "lbd": Candidate("lbd, our default", "lbd", role="ours", claimed=True),
    "lbd-c1": Candidate("lbd, first = 1", "lbd", role="forced", settings={"first": 1.0}),
    "lbd-0": Candidate("lbd, penalty 0", "lbd", role="forced", settings=_only(penalties=[0.0], curve=False)),
    "lbd-curve": Candidate("lbd, the curve alone", "lbd", role="forced", settings=_only(penalties=[], curve=True)),
    "hte": Candidate("HTE", "click", source="effect", role="intervention"),
    "hte-oracle": Candidate("HTE-oracle", "click", source="true effect", role="ceiling"),
    "lbd_paper-hte-oracle": Candidate(
        "LBD-HTE-oracle", "lbd_paper", tuned="both", source="true effect", role="ceiling"
    ),
    "oracle": Candidate("Oracle (true observation)", "click", source="true observation", role="ceiling"),
}
TABLE = tuple(label for label, one in CANDIDATES.items() if one.source == "log" and one.role != "forced")
FORCED = ("lbd-0", "lbd-curve")
PANELS = {
    "figure 3a": (
        "labels",
        "dla",
        "dla-default",
        "vectorization",
        "pair_debias",
        "regression_em",
        "click",
        "lbd_paper",
        "lbd_code",
        "lbd",
    ),
    "figure 3b": ("dla", "click", "unlimited", "lbd-lips", "lbd-ber", "lbd_paper", "lbd"),
    "figure 3c": ("click", "lbd_paper", "lbd", "lbd-c1", "hte", "hte-oracle", "lbd_paper-hte-oracle", "oracle"),
}
CLAIMS = (
    ("lbd-c1", "click"),
    ("lbd_paper", "dla"),
    ("lbd_paper", "click"),
    ("lbd", "click"),
    ("lbd", "dla"),
    ("lbd", "lbd_paper"),
    ("lbd", "lbd_code"),
)

SEVEN = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
PENALTIES = (0.0, 1.0, 100.0, 10_000.0)  # the paper's three; 0 for LBD-Ber and Unlimited
DROPS = (0.0, 0.1, 0.2, 0.3, 0.4)  # the paper's four; 0 for LBD-Lips and Unlimited


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes:
        queries: of the embedded data, to train, validate and test.
        sessions: of each query in a log.
        couplings: eta in the figures; the tables are at .1.
        seeds: draws of w, of the initial ranker, of the clicks and of the weights at the start.
        others: how many of the seeds the candidates have of which nothing is claimed.
        rankers: settings by name.
        optimisers: of each ranker.
        epochs: passes over the distinct ranked lists; which one counts, `RULES` says.
        batch_size: ranked lists a step.
        freeze: steps of Vectorization before its observation learns: a twentieth of all, as 500 of 10,000 are.
        penalties: the grid of lambda, for each ranker.
        drops: the grid of t.
        maps: couplings of the heat maps.
        map_seeds: how many of the seeds the heat maps average.
        map_rankers: whose heat maps are drawn.
        tuning_seeds: how many of the seeds a tuning averages; it tries the whole grid.
    """

    queries: tuple[int, int, int] = (3000, 300, 1000)
    sessions: int = 100
    couplings: tuple[float, ...] = SEVEN
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    others: int = 1
    rankers: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {"linear": {"name": "linear"}, "mlp": {"name": "mlp", "hidden": [64, 32]}}
    )
    optimisers: dict[str, str] = field(default_factory=lambda: {"linear": "adagrad", "mlp": "adagrad"})
    epochs: int = 60
    batch_size: int = 256
    freeze: int = 35
    penalties: dict[str, tuple[float, ...]] = field(default_factory=lambda: {"linear": PENALTIES, "mlp": PENALTIES})
    drops: tuple[float, ...] = DROPS
    maps: tuple[float, ...] = (0.0, 0.3, 0.6)
    map_seeds: int = 1
    map_rankers: tuple[str, ...] = ("linear", "mlp")
    tuning_seeds: int = 1


SIZES = {
    "quick": Size(
        queries=(1000, 200, 500),
        sessions=50,
        couplings=(0.0, 0.3, 0.6),
        seeds=(0, 1),
        epochs=40,
        batch_size=128,
        freeze=16,
        drops=(0.0, 0.1, 0.3),
        maps=(0.0, 0.3, 0.6),
        map_seeds=1,
        map_rankers=("linear",),
        tuning_seeds=1,
    ),
    "standard": Size(),
    "full": Size(
        rankers={
            "linear": {"name": "linear"},
            "mlp": {"name": "mlp", "hidden": [512, 256, 128], "layer_norm": "all"},
        },
        optimisers={"linear": "sgd", "mlp": "adagrad"},
        epochs=850,
        freeze=500,
        others=6,
        maps=SEVEN,
    ),
}

EXPECTED = Expected(
    Path(__file__).with_name("expected.csv"),
    place=("table", "data", "ranker", "method", "coupling", "measure"),
    beside=("lambda", "t"),
    numbers=("coupling", "lambda", "t"),
    kept=("table 1", "table 3", "table 4", "figure 3a", "figure 3b", "figure 3c", "claims"),
)
