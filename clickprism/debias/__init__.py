"""How clicks become a loss, one method a file.

A new method is one file here, one line in `METHODS`, a test, and a page in docs/research/methods;
docs/guides/add_a_method.md has the steps. The common contracts in `tests/contracts` run over everything that is named
here.
"""

from typing import Any, Final

from clickprism.settings import choose

METHODS: Final[dict[str, str]] = {
    "labels": "clickprism.debias.click:Labels",
    "click": "clickprism.debias.click:Click",
    "ipw": "clickprism.debias.ipw:InversePropensity",
    "dla": "clickprism.debias.dla:DualLearning",
    "regression_em": "clickprism.debias.position_based:RegressionEM",
    "pal": "clickprism.debias.position_based:PositionAware",
    "affine": "clickprism.debias.ipw:AffineCorrection",
    "click_model": "clickprism.debias.click_model:NeuralClickModel",
    "lbd": "clickprism.debias.lbd:Decoupling",
    "lbd_paper": "clickprism.debias.lbd_paper:LBDPaper",
    "lbd_code": "clickprism.debias.lbd_paper:LBDCode",
    "inforank": "clickprism.debias.inforank:InfoRank",
    "inforank_paper": "clickprism.debias.inforank_paper:InfoRankPaper",
    "independence": "clickprism.debias.inforank:Independence",
    "position": "clickprism.debias.position:PositionBias",
}


def method(name: str, **settings: Any) -> Any:
    """The method of this name with these settings; those that are not given have their defaults.

    >>> method("ipw", propensities=[1, 0.5], floor=0.1)
    InversePropensity(propensities=(1.0, 0.5), floor=0.1, estimate='none')
    """
    return choose(METHODS, {"name": name, **settings}, path="method")
