"""What a diagnosis returns: for each question a verdict with its estimate, interval, and what to do.

A diagnosis can be saved as plain values, tables and figures, and read again, so that every run writes the same report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final, get_args

import numpy as np

from clickprism._util.tables import Table, to_plain
from clickprism.errors import DataError, SettingError
from clickprism.log_model.results import Curve, Test, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from clickprism.log_model.model import LogModel

Tone: TypeAlias = Literal["good", "bad", "inconclusive"]
Json: TypeAlias = Any

SIGNS: Final[dict[Tone, str]] = {"good": "✓", "bad": "!", "inconclusive": "?"}
TITLES: Final = {
    "position": "Position bias",
    "trust": "Trust bias",
    "popularity": "Popularity bias",
    "selection": "Selection bias",
    "fit": "Fit of the model",
}
PROPERTIES: Final = {
    "coverage": ("enough data", "too little data"),
    "identifiability": ("identifiable", "not identifiable"),
    "fit": ("fits", "does not fit"),
}
"""Findings that are properties of a log, not biases: the words for present, which is good, and absent."""
SEE_COVERAGE: Final = "See Coverage."
REMEDY: Final = "Remove stages/diagnosis.json from the folder, and run the command again"


@final
@dataclass(frozen=True, eq=False)
class Finding:
    """The answer to one question about a log.

    Attributes:
        name: The bias or property, such as "position".
        verdict: "present", "absent", or "inconclusive" if the log does not contain enough evidence.
        sentence: The finding in one or two sentences, with its number.
        advice: What to do.
        estimate: Size of the bias in `unit`; None if it is unknown.
        unit: What the estimate measures.
        interval: 95% interval of the estimate; None if it is unknown.
        p_value: Of the hypothesis that the bias is absent; None if it was not tested.
        details: Further numbers, as values that JSON can hold.
        table: Table of the report, or None.
        figure: Draws the figure of the report when it is called, or None.
    """

    name: str
    verdict: Verdict
    sentence: str
    advice: str
    estimate: float | None = None
    unit: str = ""
    interval: tuple[float, float] | None = None
    p_value: float | None = None
    details: Mapping[str, Json] = field(default_factory=dict)
    table: Table | None = None
    figure: Callable[[], Figure] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.verdict not in get_args(Verdict):
            raise SettingError("verdict", self.verdict, f"be one of {', '.join(get_args(Verdict))}")
        if self.estimate is not None and not math.isfinite(self.estimate):
            raise SettingError("estimate", self.estimate, "be finite")

    @property
    def title(self) -> str:
        """Return the heading of the finding.

        >>> Finding("trust", "absent", "", "").title, Finding("drift", "absent", "", "").title
        ('Trust bias', 'Drift')
        """
        return TITLES.get(self.name, self.name.capitalize())

    @property
    def tone(self) -> Tone:
        """Return whether the verdict is good news: an absent bias is, and so is enough data."""
        if self.verdict == "inconclusive":
            return "inconclusive"
        return "good" if (self.verdict == "present") is (self.name in PROPERTIES) else "bad"

    @property
    def word(self) -> str:
        """Return the verdict as a reader sees it, with its sign.

        >>> Finding("coverage", "present", "", "").word, Finding("trust", "present", "", "").word
        ('✓ enough data', '! present')
        """
        word: str = self.verdict
        if self.name in PROPERTIES and self.verdict != "inconclusive":
            word = PROPERTIES[self.name][self.verdict == "absent"]
        return f"{SIGNS[self.tone]} {word}"

    @property
    def number(self) -> str:
        """Return the estimate with its interval, without the unit; empty if there is none.

        >>> Finding("position", "present", "", "", estimate=0.614, interval=(0.5, 0.7)).number
        '0.614 [0.5, 0.7]'
        """
        if self.estimate is None:
            return ""
        ends = "" if self.interval is None else f" [{_short(self.interval[0])}, {_short(self.interval[1])}]"
        return f"{_short(self.estimate)}{ends}"

    def to_json(self) -> dict[str, Json]:
        """Return everything but the table and the figure, as plain values."""
        names = ("name", "title", "verdict", "word", "sentence", "advice", "estimate", "unit", "interval", "p_value")
        return to_plain({name: getattr(self, name) for name in (*names, "details")})  # type: ignore[no-any-return]


@final
@dataclass(frozen=True, eq=False)
class Diagnosis:
    """All findings of a log, in the order of the report.

    Attributes:
        findings: By name.
        sessions: Number of sessions of the log.
        impressions: Number of documents shown, each time counted.
        as_of: When the diagnosis was made (UTC), as text; may be empty.
        curve: The position curve of the model; None if no model could be fitted.
        model: The fitted model of the log, which the findings read; None if no finding needs it, if it could not be
            fitted, or if the diagnosis was read from a file.
    """

    findings: Mapping[str, Finding]
    sessions: int
    impressions: int
    as_of: str = ""
    curve: Curve | None = None
    model: LogModel | None = field(default=None, repr=False)

    def __getitem__(self, name: str) -> Finding:
        return self.findings[name]

    def verdict(self, name: str) -> Verdict:
        """Return the verdict of a finding; "inconclusive" if the diagnosis does not have it."""
        return self.findings[name].verdict if name in self.findings else "inconclusive"

    def to_json(self) -> dict[str, Json]:
        """Return the findings and the curve as plain values."""
        return {
            "as_of": self.as_of,
            "sessions": self.sessions,
            "impressions": self.impressions,
            "curve": to_plain(self.curve),
            "findings": [finding.to_json() for finding in self.findings.values()],
        }


def spans(chosen: Sequence[bool]) -> str:
    """Return the positions (from 1) that are chosen, as text.

    >>> spans([False, True, True, True, False, True])
    '2 to 4, 6'
    """
    positions = np.flatnonzero(chosen) + 1
    pieces = np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1)
    return ", ".join(str(each[0]) if len(each) == 1 else f"{each[0]} to {each[-1]}" for each in pieces)


def values_of(test: Test) -> dict[str, Json]:
    """Return the fields of a `Finding` that a test of the model fills: estimate, interval, unit, p value, details."""
    known = math.isfinite(test.estimate)
    return {
        "estimate": test.estimate if known else None,
        "unit": test.unit,
        "interval": (test.lower, test.upper) if known and math.isfinite(test.lower) else None,
        "p_value": test.p_value if math.isfinite(test.p_value) else None,
        "details": {"gain": test.gain, "error": test.error, "used": test.used, "note": test.note},
    }


def inconclusive(name: str, why: str, advice: str, **more: Any) -> Finding:
    """Return a finding without a verdict, and the reason."""
    return Finding(name, "inconclusive", why, advice, **more)


def _short(value: float) -> str:
    """Return a number with three digits, or with separators of thousands.

    >>> _short(0.01234), _short(1234567.0), _short(12.0)
    ('0.0123', '1,234,567', '12')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def kept_diagnosis(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as plain values: what `to_json` returns, and the table and the SVG figure of each finding."""
    from clickprism.evaluation.plots import svg

    tables, figures = {}, {}
    for name, finding in diagnosis.findings.items():
        if finding.table is not None:
            tables[name] = finding.table._asdict()
        if finding.figure is not None:
            figures[name] = svg(finding.figure(), title=f"{name}: {finding.sentence}")
    return {"diagnosis": diagnosis.to_json(), "tables": tables, "figures": figures}


def diagnosis_of(kept: Mapping[str, Any]) -> Diagnosis:
    """Return a saved diagnosis, without its model and its figures; `kept["figures"]` has them as SVG.

    >>> found = Finding("position", "present", "There is bias.", "Correct it.", estimate=0.4, interval=(0.3, 0.5))
    >>> again = diagnosis_of(kept_diagnosis(Diagnosis({"position": found}, sessions=9, impressions=90)))
    >>> again["position"].interval, again.verdict("position"), again.sessions
    ((0.3, 0.5), 'present', 9)
    """
    try:
        saved, tables = kept["diagnosis"], kept["tables"]
        findings = {each["name"]: _finding(each, tables.get(each["name"])) for each in saved["findings"]}
        return Diagnosis(findings, saved["sessions"], saved["impressions"], saved["as_of"], _curve(saved["curve"]))
    except (KeyError, TypeError):
        raise DataError("the saved diagnosis is damaged", remedy=REMEDY) from None


def _finding(saved: Mapping[str, Any], table: Mapping[str, Any] | None) -> Finding:
    own = {name: value for name, value in saved.items() if name not in ("title", "word", "interval")}
    interval = saved["interval"] and tuple(saved["interval"])
    return Finding(**own, interval=interval, table=None if table is None else Table(**table))


def _curve(saved: Mapping[str, Any] | None) -> Curve | None:
    if saved is None:
        return None
    ends = {name: np.array(saved[name], dtype=np.float64) for name in ("values", "lower", "upper")}
    return Curve(**{**saved, **ends})
