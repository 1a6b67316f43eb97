"""What a diagnosis says: for each bias a verdict in a sentence, the number behind it, and what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final, get_args

from clickprism._util.tables import to_plain
from clickprism.errors import SettingError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Verdict: TypeAlias = Literal["present", "absent", "unknown"]
Json: TypeAlias = Any


@final
@dataclass(frozen=True, eq=False)
class Finding:
    """One thing that a diagnosis found, or found that it cannot be known.

    Attributes:
        name: which bias or property, such as "position".
        verdict: "present", "absent", or "unknown" where the log cannot tell.
        sentence: the verdict in words, for people who never read a paper.
        number: the size of it, in the unit that `unit` names; None where there is none.
        unit: what the number counts.
        interval: of the number, 95%; None where there is none.
        p_value: of the test behind the verdict; None without one.
        advice: what to do about it.
        details: everything else, as plain values that JSON can hold.
        table: (columns, rows) to print, or None.
        figure: draws the picture for a report when it is called, or None.
    """

    name: str
    verdict: Verdict
    sentence: str
    advice: str
    number: float | None = None
    unit: str = ""
    interval: tuple[float, float] | None = None
    p_value: float | None = None
    details: Mapping[str, Json] = field(default_factory=dict)
    table: tuple[Sequence[str], Sequence[Sequence[str]]] | None = None
    figure: Callable[[], Figure] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.verdict not in get_args(Verdict):
            raise SettingError("verdict", self.verdict, f"be one of {', '.join(get_args(Verdict))}")
        if self.number is not None and not math.isfinite(self.number):
            raise SettingError("number", self.number, "be finite")

    def to_json(self) -> dict[str, Json]:
        """All of it but the figure, as plain values."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "number": self.number,
            "unit": self.unit,
            "interval": None if self.interval is None else list(self.interval),
            "p_value": self.p_value,
            "advice": self.advice,
            "details": to_plain(self.details),
        }


@final
@dataclass(frozen=True, eq=False)
class Diagnosis:
    """All findings of a log, in the order of a report.

    Attributes:
        findings: by name.
        sessions: of the log.
        impressions: documents shown, each time counted.
        as_of: when it was made, in UTC, as text; empty where nobody said.
    """

    findings: Mapping[str, Finding]
    sessions: int
    impressions: int
    as_of: str = ""

    def __getitem__(self, name: str) -> Finding:
        return self.findings[name]

    def verdict(self, name: str) -> Verdict:
        """Of the finding of this name; "unknown" where there is none."""
        return self.findings[name].verdict if name in self.findings else "unknown"

    def to_json(self) -> dict[str, Json]:
        """All findings, as plain values."""
        return {
            "format": "clickprism diagnosis",
            "version": 1,
            "as_of": self.as_of,
            "sessions": self.sessions,
            "impressions": self.impressions,
            "findings": [finding.to_json() for finding in self.findings.values()],
        }
