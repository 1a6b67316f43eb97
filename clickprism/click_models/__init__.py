"""Click models: each simulates users, is fitted to a log, or both; one model per file.

A new model is one file here, one line in `USERS` or `CLICK_MODELS`, a test, and an entry in
docs/guides/click_models.md.
"""

from typing import Any, Final

from clickprism.settings import choose

_HERE = "clickprism.click_models"

USERS: Final[dict[str, str]] = {
    "pbm": f"{_HERE}.pbm:PositionUser",
    "ubm": f"{_HERE}.ubm:BrowsingUser",
    "cascade": f"{_HERE}.cascade:CascadeUser",
    "dcm": f"{_HERE}.dcm:DependentUser",
    "ccm": f"{_HERE}.ccm:ClickChainUser",
    "dbn": f"{_HERE}.dbn:BayesianUser",
    "sdbn": f"{_HERE}.dbn:SimplifiedUser",
    "trust": f"{_HERE}.trust:TrustUser",
    "coupled": f"{_HERE}.coupled:CoupledUser",
    "popularity": f"{_HERE}.popularity:PopularityUser",
}

CLICK_MODELS: Final[dict[str, str]] = {
    "global": f"{_HERE}.ctr:GlobalRate",
    "rank": f"{_HERE}.ctr:RankRate",
    "document": f"{_HERE}.ctr:DocumentRate",
    "pbm": f"{_HERE}.pbm:PositionModel",
    "ubm": f"{_HERE}.ubm:BrowsingModel",
    "cascade": f"{_HERE}.cascade:CascadeModel",
    "dcm": f"{_HERE}.dcm:DependentModel",
    "sdbn": f"{_HERE}.dbn:SimplifiedModel",
    "dbn": f"{_HERE}.dbn:BayesianModel",
    "ccm": f"{_HERE}.ccm:ClickChainModel",
}


def click_model(name: str, **settings: Any) -> Any:
    """Return the click model of this name with these settings; the others have their defaults.

    >>> click_model("rank")
    RankRate(prior=Prior(clicks=1.0, skips=1.0))
    """
    return choose(CLICK_MODELS, {"name": name, **settings}, path="click_model")
