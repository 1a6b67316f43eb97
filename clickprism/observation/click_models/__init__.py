"""Click models fitted to logs: what each says of documents, of observation, and of clicks to come.

A new model is one file here, one line in `CLICK_MODELS`, a test, and an entry in docs/click_models.md.
"""

from typing import Any, Final

from clickprism.settings import choose

_HERE = "clickprism.observation.click_models"

CLICK_MODELS: Final[dict[str, str]] = {
    "global": f"{_HERE}.ctr:GlobalRate",
    "rank": f"{_HERE}.ctr:RankRate",
    "document": f"{_HERE}.ctr:DocumentRate",
    "pbm": f"{_HERE}.pbm:PositionModel",
    "ubm": f"{_HERE}.ubm:BrowsingModel",
    "cascade": f"{_HERE}.cascade:CascadeModel",
    "dcm": f"{_HERE}.dcm:DependentModel",
    "sdbn": f"{_HERE}.sdbn:SimplifiedModel",
    "dbn": f"{_HERE}.dbn:BayesianModel",
    "ccm": f"{_HERE}.ccm:ClickChainModel",
}


def click_model(name: str, **settings: Any) -> Any:
    """The click model of this name with these settings; those that are not given have their defaults.

    >>> click_model("rank")
    RankRate(prior=Prior(clicks=1.0, skips=1.0))
    """
    return choose(CLICK_MODELS, {"name": name, **settings}, path="click_model")
