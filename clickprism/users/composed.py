"""A user with several biases at once: where documents stand, what they look like, what is popular, what is trusted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias, final

import numpy as np

from clickprism.errors import SettingError
from clickprism.types import Bool, Float64, Int64, JudgedLists
from clickprism.users.base import Response, Shown, adapted, check_probability, independent_log_likelihood
from clickprism.users.ccm import ClickChainUser
from clickprism.users.coupled import CoupledUser
from clickprism.users.dbn import BayesianUser
from clickprism.users.pbm import PositionUser
from clickprism.users.popularity import PopularityUser
from clickprism.users.ubm import BrowsingUser

Base: TypeAlias = PositionUser | BrowsingUser | ClickChainUser | BayesianUser


@final
@dataclass(frozen=True)
class ComposedUser:
    """P(click at k) = o_k(x, d) (plus a + minus_k (1 - a)); each bias can be switched off.

    Over a `PositionUser` the observation is v_k^(max(1 + w.x, 0) (1 - s pop(d))), of `CoupledUser` and
    `PopularityUser`; over users who heed the clicks above, it is theirs. Trust makes what is not attractive look so:
    minus_k = trust / k, plus = 1.

    Attributes:
        base: how users look at positions.
        coupled: how features bend it; its own base is not used.
        popular: how past clicks bend it; its own base is not used.
        trust: of an irrelevant document in the first place, the probability of a click once it is seen; 0 is none.
    """

    name: ClassVar[str] = "composed"

    base: Base = field(default_factory=PositionUser)
    coupled: CoupledUser = field(default_factory=lambda: CoupledUser(eta=0.0))
    popular: PopularityUser = field(default_factory=lambda: PopularityUser(strength=0.0))
    trust: float = 0.0

    def __post_init__(self) -> None:
        check_probability("trust", self.trust)
        bends = self.coupled.eta > 0 or self.popular.strength > 0
        if bends and not isinstance(self.base, PositionUser):
            raise SettingError("base", self.base.name, "be pbm where documents bend the observation")

    def adapt(self, judged: JudgedLists, *, seed: int) -> ComposedUser:
        """This user made ready for these documents."""
        coupled, popular = adapted(self.coupled, judged, seed=seed), adapted(self.popular, judged, seed=seed)
        if not isinstance(coupled, CoupledUser) or not isinstance(popular, PopularityUser):
            raise TypeError("a user adapts to one of its own kind")
        return ComposedUser(self.base, coupled, popular, self.trust)

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Let one user look at each session."""
        from clickprism.users.kernels import by_entry, see

        believed = self._believed(shown)
        if isinstance(self.base, PositionUser):
            return see(by_entry, believed, seed, self._observation(shown).astype(np.float32))
        return self.base.click(believed, seed=seed)

    def log_likelihood(self, shown: Shown, clicks: Bool) -> Float64:
        """Log P(clicks of the session), [sessions]."""
        believed = self._believed(shown)
        if isinstance(self.base, PositionUser):
            return independent_log_likelihood(shown, clicks, self._observation(shown) * believed.attraction)
        return self.base.log_likelihood(believed, clicks)

    def _believed(self, shown: Shown) -> Shown:
        minus = (self.trust / shown.positions).astype(np.float32)
        attraction = shown.attraction + minus * (1 - shown.attraction)
        return Shown(shown.lists, shown.offsets, shown.rows, attraction, shown.start)

    def _observation(self, shown: Shown) -> Float64:
        exponent = self.coupled.exponent(shown.lists) * (
            1 - self.popular.strength * self.popular.popularity(shown.lists)
        )
        positions: Int64 = shown.positions
        if not isinstance(self.base, PositionUser):
            raise TypeError("only users who heed positions alone are bent by documents")
        observation: Float64 = self.base.observation(positions) ** exponent[shown.rows]
        return observation
