"""What is run: the data, the sizes, and the methods under the names of the paper, each in one table."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from reproduce.common.expected import Expected

LEADING = "nDCG(exp)@10"
NDCG = ("nDCG(exp)@3", "nDCG(exp)@5", LEADING)
MAX_GRADES = {"embedded": 4, "yahoo": 4, "mq2007": 2, "mq2008": 2, "adressa": 1}
FOLDS = {"mq2008": (1, 2, 3, 4, 5), "mq2007": (1, 2, 3, 4, 5)}
DATA = tuple(MAX_GRADES)
USERS = ("pbm", "ubm", "ccm")
USUAL: dict[str, float | None] = {"pbm": 1.0, "ubm": None, "ccm": 0.5}  # tau, nothing, gamma_1
TABLES = {"table 2": ("ubm",), "table 3": ("pbm", "ccm")}
RANKERS = ("attention", "lambdamart", "mlp")
PAPER_RANKERS = {"attention": "InfoRank (Ranking)", "lambdamart": "LambdaMART", "mlp": "DNN"}
BESIDE = {"embedded": "yahoo", "mq2008": "mq2007"}  # whose published figures stand beside ours in the report
NOISE = 0.1  # epsilon of Eq. 28
THRESHOLD = 0.5

Source: TypeAlias = Literal["log", "shuffled"]
Role: TypeAlias = Literal["ceiling", "baseline", "ours"]


def relevant_grade(max_grade: int) -> int:
    """The least grade y whose P(r = 1) = .1 + .9 (2^y - 1) / (2^max - 1) reaches one half (Eq. 28).

    >>> [relevant_grade(top) for top in (4, 2, 1)]
    [3, 2, 1]
    """
    top = 2**max_grade - 1
    return next(y for y in range(max_grade + 1) if NOISE + (1 - NOISE) * (2**y - 1) / top >= THRESHOLD)


def measures(data: str) -> tuple[str, ...]:
    """What is measured on this data, the leading measure first; MAP with the threshold of Eq. 28, and with none."""
    grade = relevant_grade(MAX_GRADES[data])
    return LEADING, *NDCG[:-1], *dict.fromkeys((f"MAP(rel={grade})@10", "MAP(rel=1)@10"))


@dataclass(frozen=True)
class Candidate:
    """A method of the comparison.

    Attributes:
        title: as the paper, or we, call it.
        method: the name in clickprism.
        settings: of the method.
        rankers: which train by it: those of the paper, where it is the paper's.
        role: a "ceiling" is told what no log tells; "baseline" and "ours" are compared.
        source: what it learns from; "shuffled" is told propensities that were measured on shuffled lists.
        claimed: whether a claim is made of it; then it is run with every seed, else with the first `Size.others`.
        passes: how often it goes over the log, as a share of what the others do.
    """

    title: str
    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    rankers: tuple[str, ...] = ("attention", "mlp")
    role: Role = "baseline"
    source: Source = "log"
    claimed: bool = False
    passes: float = 1.0


CANDIDATES: dict[str, Candidate] = {
    "labels": Candidate("Labelled data", "labels", rankers=RANKERS, role="ceiling", claimed=True),
    "inforank": Candidate("InfoRank, our default", "inforank", role="ours", claimed=True),
    "inforank-": Candidate("InfoRank-, our default", "inforank", {"eta": 0.0}, role="ours", claimed=True),
    "inforank_paper": Candidate("InfoRank, as printed", "inforank_paper", role="ours", passes=2.0),
    "inforank_paper-": Candidate("InfoRank-, as printed", "inforank_paper", {"eta": 0.0}, role="ours", passes=2.0),
    "lbd": Candidate("LBD, our default", "lbd", role="ours"),
    "dla": Candidate("Dual Learning", "dla", rankers=("mlp",)),
    "pair_debias": Candidate("Ratio-Debiasing", "pair_debias", rankers=("lambdamart",)),
    "regression_em": Candidate("Regression-EM", "regression_em", rankers=RANKERS, claimed=True),
    "pal": Candidate("PAL", "pal", claimed=True),
    "randomization": Candidate("Randomization", "ipw", {"floor": 0.01}, rankers=RANKERS, source="shuffled"),
    "click": Candidate("Click data", "click", rankers=RANKERS, claimed=True),
}
ETAS = (0.0, 0.2, 0.5, 1.0)
FORMS = ("inforank", "inforank_paper")
CURVES = ("inforank", "inforank_paper", "regression_em", "pal", "click")
DEPENDENCE = ("inforank", "inforank-", "inforank_paper", "inforank_paper-")
SEVERITY = ("labels", "inforank", "inforank-", "regression_em", "pal", "click")
AMOUNTS = ("inforank", "inforank-", "click")
CLAIMS = (
    ("inforank", "click"),
    ("inforank", "pal"),
    ("inforank", "regression_em"),
    ("inforank", "inforank-"),
    ("inforank", "inforank_paper"),
    ("inforank_paper", "click"),
    ("lbd", "click"),
)
RATIOS = (("inforank", "inforank-"), ("inforank_paper", "inforank_paper-"))  # of Delta-CI


@dataclass(frozen=True)
class Trained:
    """A ranker and how much it trains.

    Attributes:
        ranker: its settings.
        passes: how often it goes over the log, as a share of `Size.epochs`.
    """

    ranker: dict[str, Any]
    passes: float = 1.0


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes:
        queries: of the embedded data, to train, validate and test.
        sessions: of each query in a log.
        users: who clicks in tables and in Figures 3 to 5.
        seeds: draws of the initial ranker, of the clicks and of the weights at the start.
        others: how many of the seeds the candidates have of which nothing is claimed, and Figures 5 (right) to 7.
        rankers: by name.
        figure_ranker: who is trained for Figures 5 (right) to 7.
        epochs: passes over the distinct ranked lists; which one counts, held-out clicks say.
        batch_size: ranked lists a step.
        taus: the severity of PBM in Figure 6.
        gammas: gamma_1 of CCM in Figure 6.
        shares: of the training queries in Figure 7.
        figure_users: whose logs Figures 5 (right) and 7 take.
    """

    queries: tuple[int, int, int] = (3000, 300, 1000)
    sessions: int = 100
    users: tuple[str, ...] = USERS
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    others: int = 2
    rankers: dict[str, Trained] = field(default_factory=dict)
    figure_ranker: str = "attention"
    epochs: int = 60
    batch_size: int = 256
    taus: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0)
    gammas: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)
    shares: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)
    figure_users: tuple[str, ...] = USERS


SMALL = {"name": "mlp", "hidden": [64, 32]}
TREES = {"name": "lambdamart"}
SIZES = {
    "quick": Size(
        queries=(1000, 200, 500),
        sessions=50,
        seeds=(0, 1),
        others=1,
        rankers={
            "attention": Trained({"name": "attention", "tokens": 16, "width": 8}, passes=0.25),
            "lambdamart": Trained({**TREES, "trees": 100}),
            "mlp": Trained(SMALL),
        },
        epochs=40,
        batch_size=128,
        taus=(0.0, 1.0, 2.0),
        gammas=(0.1, 0.5, 0.9),
        shares=(0.2, 1.0),
        figure_users=("pbm",),
    ),
    "standard": Size(
        rankers={
            "attention": Trained({"name": "attention", "tokens": 16}, passes=0.8),
            "lambdamart": Trained(TREES),
            "mlp": Trained(SMALL),
        },
    ),
    "full": Size(
        rankers={
            "attention": Trained({"name": "attention"}),
            "lambdamart": Trained(TREES),
            "mlp": Trained({"name": "mlp", "hidden": [512, 256, 128]}),
        },
        epochs=100,
        others=5,
    ),
}

EXPECTED = Expected(
    Path(__file__).with_name("expected.csv"),
    place=("table", "data", "user", "ranker", "method", "eta", "at", "measure"),
    numbers=("eta", "at"),
    kept=(
        "table 2",
        "table 3",
        "figure 3 left",
        "figure 3 right",
        "figure 4",
        "figure 5 left",
        "figure 5 right",
        "figure 6",
        "figure 7",
        "claims",
    ),
)
