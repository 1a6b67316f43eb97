"""Who clicks: simulated users, each a click model that returns its clicks and the truth behind them."""

from typing import Final

USERS: Final[dict[str, str]] = {
    "pbm": "clickprism.users.pbm:PositionUser",
    "ubm": "clickprism.users.ubm:BrowsingUser",
    "cascade": "clickprism.users.cascade:CascadeUser",
    "ccm": "clickprism.users.ccm:ClickChainUser",
    "dbn": "clickprism.users.dbn:BayesianUser",
    "trust": "clickprism.users.trust:TrustUser",
    "coupled": "clickprism.users.coupled:CoupledUser",
    "popularity": "clickprism.users.popularity:PopularityUser",
}
