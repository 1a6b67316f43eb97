"""All findings of a log, in the order of a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, final

from clickprism.data.logged import Logged
from clickprism.diagnosis.coupling import CouplingSettings
from clickprism.diagnosis.coverage import CoverageSettings
from clickprism.diagnosis.drift import DriftSettings
from clickprism.diagnosis.finding import Diagnosis, Finding
from clickprism.diagnosis.identifiability import IdentifiabilitySettings
from clickprism.diagnosis.interaction import InteractionSettings
from clickprism.diagnosis.popularity import PopularitySettings
from clickprism.diagnosis.position import PositionSettings
from clickprism.diagnosis.selection import SelectionSettings
from clickprism.diagnosis.trust import TrustSettings
from clickprism.errors import SettingError

_HERE = "clickprism.diagnosis"

FINDINGS: Final[dict[str, str]] = {
    "coverage": f"{_HERE}.coverage:coverage",
    "identifiability": f"{_HERE}.identifiability:identifiability",
    "position": f"{_HERE}.position:position",
    "trust": f"{_HERE}.trust:trust",
    "coupling": f"{_HERE}.coupling:coupling",
    "interaction": f"{_HERE}.interaction:interaction",
    "popularity": f"{_HERE}.popularity:popularity",
    "selection": f"{_HERE}.selection:selection",
    "drift": f"{_HERE}.drift:drift",
}


@final
@dataclass(frozen=True)
class DiagnoseSettings:
    """Settings of the findings.

    Attributes:
        seed: of everything random.
        coverage: when there is enough.
        identifiability: when positions count as linked.
        position: when the position counts.
        trust: when trust counts.
        coupling: when features count.
        interaction: when clicks above count.
        popularity: when past clicks count.
        selection: when too much was never shown.
        drift: when a change over days counts.
    """

    seed: int = 0
    coverage: CoverageSettings = field(default_factory=CoverageSettings)
    identifiability: IdentifiabilitySettings = field(default_factory=IdentifiabilitySettings)
    position: PositionSettings = field(default_factory=PositionSettings)
    trust: TrustSettings = field(default_factory=TrustSettings)
    coupling: CouplingSettings = field(default_factory=CouplingSettings)
    interaction: InteractionSettings = field(default_factory=InteractionSettings)
    popularity: PopularitySettings = field(default_factory=PopularitySettings)
    selection: SelectionSettings = field(default_factory=SelectionSettings)
    drift: DriftSettings = field(default_factory=DriftSettings)

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise SettingError("seed", self.seed, "not be negative")


def check_names(only: Sequence[str] | None) -> tuple[str, ...]:
    """The findings that are asked for, in the order of a report; None is all.

    >>> check_names(["popularity", "coverage"])
    ('coverage', 'popularity')
    """
    for name in only or ():
        if name not in FINDINGS:
            raise SettingError("only", name, f"be among {', '.join(FINDINGS)}")
    return tuple(name for name in FINDINGS if only is None or name in only)


def diagnose(
    logged: Logged,
    *,
    settings: DiagnoseSettings | None = None,
    only: Sequence[str] | None = None,
    progress: Callable[[str], None] | None = None,
    as_of: str = "",
) -> Diagnosis:
    """What biases a log has, whether relevance can be learned from it, and what to do about either.

    Args:
        logged: the log.
        settings: of the findings.
        only: the names of findings; by default all.
        progress: told the name of each finding as it is begun.
        as_of: when it is made, as text.

    >>> from clickprism.simulation.worlds import WorldSettings, make_world
    >>> world = make_world(WorldSettings(policy="single", queries=20, sessions=2000))
    >>> diagnose(world.logged, only=["identifiability"]).verdict("identifiability")
    'absent'
    """
    chosen = settings or DiagnoseSettings()
    findings: dict[str, Finding] = {}
    for name in check_names(only):
        if progress is not None:
            progress(name)
        findings[name] = _call(name, logged, chosen)
    clicks = logged.clicks
    return Diagnosis(findings, clicks.sessions, int(clicks.list_impressions.sum()), as_of)


def _call(name: str, logged: Logged, settings: DiagnoseSettings) -> Finding:
    module, function = FINDINGS[name].split(":")
    own: dict[str, Any] = {"settings": getattr(settings, name)} if hasattr(settings, name) else {}
    found = getattr(import_module(module), function)(logged, **own)
    if not isinstance(found, Finding):
        raise TypeError(f"{name} gave a {type(found).__name__}, not a Finding")
    return found
