"""What a run of `auto` depends on, besides the log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import final

from clickprism.errors import SettingError


@final
@dataclass(frozen=True, kw_only=True)
class AutoSettings:
    """What a run of `auto` depends on, besides the log.

    Attributes:
        budget: Time for all stages together, such as 90s, 10m or 1.5h. The search for the best candidate takes what
            the other stages leave.
        seed: Random seed.
        processes: Number of candidates that are trained at the same time. The result does not depend on it unless the
            budget is used up.
    """

    budget: timedelta = timedelta(minutes=10)
    seed: int = 0
    processes: int = 2

    def __post_init__(self) -> None:
        if self.budget <= timedelta(0):
            raise SettingError("budget", str(self.budget), "be a time above 0, such as 10m")
        if self.seed < 0:
            raise SettingError("seed", self.seed, "be at least 0")
        if self.processes < 1:
            raise SettingError("processes", self.processes, "be at least 1")
