"""A user with several biases at once: position, features, popularity and trust."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias, final

import numpy as np

from clickprism.click_models.ccm import ClickChainUser
from clickprism.click_models.coupled import CoupledUser
from clickprism.click_models.dbn import BayesianUser
from clickprism.click_models.pbm import PositionUser
from clickprism.click_models.popularity import PopularityUser
from clickprism.click_models.ubm import BrowsingUser
from clickprism.click_models.users import Response, Shown, adapted, check_probability
from clickprism.errors import SettingError
from clickprism.types import Float64, Int64, JudgedLists

Base: TypeAlias = PositionUser | BrowsingUser | ClickChainUser | BayesianUser


@final
@dataclass(frozen=True)
class ComposedUser:
    """P(click at k) = o_k(x, d) (plus a + minus_k (1 - a)); each bias can be switched off.

    With a `PositionUser` as base the observation is v_k^(max(1 + w.x, 0) (1 - s pop(d))), from `CoupledUser` and
    `PopularityUser`; with other users as base it is theirs. Trust bias: minus_k = trust / k, plus = 1.

    Attributes:
        base: observation by position, or by position and clicks above.
        coupled: how observation depends on features; its own base is not used.
        popular: how observation depends on past clicks; its own base is not used.
        trust: P(click | observed) of an irrelevant document at position 1; 0 means no trust bias.
    """

    name: ClassVar[str] = "composed"

    base: Base = field(default_factory=PositionUser)
    coupled: CoupledUser = field(default_factory=lambda: CoupledUser(eta=0.0))
    popular: PopularityUser = field(default_factory=lambda: PopularityUser(strength=0.0))
    trust: float = 0.0

    def __post_init__(self) -> None:
        check_probability("trust", self.trust)
        depends_on_documents = self.coupled.eta > 0 or self.popular.strength > 0
        if depends_on_documents and not isinstance(self.base, PositionUser):
            raise SettingError("base", self.base.name, "be pbm if observation depends on documents")

    def adapt(self, judged: JudgedLists, *, seed: int) -> ComposedUser:
        """Return this user with parameters for these documents."""
        coupled, popular = adapted(self.coupled, judged, seed=seed), adapted(self.popular, judged, seed=seed)
        if not isinstance(coupled, CoupledUser) or not isinstance(popular, PopularityUser):
            raise TypeError("`adapt` must return a user of the same class")
        return ComposedUser(self.base, coupled, popular, self.trust)

    def click(self, shown: Shown, *, seed: int) -> Response:
        """Simulate one user per session."""
        from clickprism.click_models.kernels import by_entry, see

        believed = self._believed(shown)
        if isinstance(self.base, PositionUser):
            return see(by_entry, believed, seed, self._observation(shown).astype(np.float32))
        return self.base.click(believed, seed=seed)

    def _believed(self, shown: Shown) -> Shown:
        minus = (self.trust / shown.positions).astype(np.float32)
        attraction = shown.attraction + minus * (1 - shown.attraction)
        return Shown(shown.lists, shown.offsets, shown.rows, attraction, shown.start)

    def _observation(self, shown: Shown) -> Float64:
        exponent = self.coupled.exponent(shown.lists) * self.popular.exponent(shown.lists)
        positions: Int64 = shown.positions
        if not isinstance(self.base, PositionUser):
            raise TypeError("observation depends on documents only with a PositionUser as base")
        observation: Float64 = self.base.observation(positions) ** exponent[shown.rows]
        return observation
