"""A diagnosis for people and for programs: words for a terminal, JSON, and one HTML page with figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from clickprism._util.tables import Table
from clickprism.diagnosis.finding import Diagnosis, Finding, Json
from clickprism.evaluation.plots import svg
from clickprism.evaluation.report import Beside, Part, Said, write_report
from clickprism.evaluation.tables import p_text

if TYPE_CHECKING:
    from rich.console import Group

Tone: TypeAlias = Literal["good", "bad", "unknown"]

TITLES: Final = {
    "coverage": "Coverage",
    "identifiability": "Identifiability",
    "position": "Position bias",
    "trust": "Trust bias",
    "coupling": "Coupling",
    "interaction": "Interaction",
    "popularity": "Popularity bias",
    "selection": "Selection bias",
    "drift": "Drift",
}
WANTED: Final = {"coverage": ("enough", "scarce"), "identifiability": ("linked", "not linked")}
"""What is good to have, and not a bias: the words for present and absent."""
SIGNS: Final[dict[Tone, str]] = {"good": "✓", "bad": "!", "unknown": "?"}
STYLES: Final[dict[Tone, str]] = {"good": "green", "bad": "bold yellow", "unknown": "dim"}


def title(finding: Finding) -> str:
    """What a finding is called in a heading."""
    return TITLES.get(finding.name, finding.name.capitalize())


def tone(finding: Finding) -> Tone:
    """Whether a verdict is welcome; a bias that is absent is, and so is enough to learn from."""
    if finding.verdict == "unknown":
        return "unknown"
    return "good" if (finding.verdict == "present") is (finding.name in WANTED) else "bad"


def word(finding: Finding) -> str:
    """The verdict in a word.

    >>> word(Finding("coverage", "present", "", "")), word(Finding("trust", "present", "", ""))
    ('enough', 'present')
    """
    if finding.verdict == "unknown" or finding.name not in WANTED:
        return finding.verdict
    return WANTED[finding.name][finding.verdict == "absent"]


def number(finding: Finding) -> str:
    """The number behind a verdict with its interval; empty where there is none.

    >>> number(Finding("position", "present", "", "", number=0.61, unit="of the first", interval=(0.5, 0.7)))
    '0.61 [0.5, 0.7] of the first'
    """
    if finding.number is None:
        return ""
    ends = "" if finding.interval is None else f" [{_short(finding.interval[0])}, {_short(finding.interval[1])}]"
    return f"{_short(finding.number)}{ends} {finding.unit}".rstrip()


def as_rich(diagnosis: Diagnosis) -> Group:
    """The findings as a table, and below it what to do; for a terminal, or as plain text at any width."""
    from rich import box
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False, header_style="")
    grid.add_column("finding", no_wrap=True)
    grid.add_column("verdict", no_wrap=True)
    grid.add_column("in a sentence")
    grid.add_column("number", max_width=26)
    steps: list[Any] = []
    for finding in diagnosis.findings.values():
        style = STYLES[tone(finding)]
        verdict = Text(f"{SIGNS[tone(finding)]} {word(finding)}", style=style)
        grid.add_row(Text(title(finding)), verdict, Text(finding.sentence), Text(number(finding)))
        grid.add_row("", "", "", "")
        if finding.advice and tone(finding) != "good":
            steps.append(Text(f"{title(finding)}: ", style="bold") + Text(finding.advice, style="not bold"))
    head = Text(f"{diagnosis.sessions:,} sessions, {diagnosis.impressions:,} documents shown\n")
    todo: list[Any] = [Text("What to do"), *(Padding(each, (0, 0, 0, 2)) for each in steps)] if steps else []
    return Group(head, grid, *todo)


def as_text(diagnosis: Diagnosis, *, width: int = 110) -> str:
    """The same as plain text."""
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False, legacy_windows=False)
    with console.capture() as captured:
        console.print(as_rich(diagnosis))
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip()


def as_json(diagnosis: Diagnosis, *, log: str, account: Mapping[str, int]) -> dict[str, Json]:
    """All findings, each with the words of a report, and what was counted on the way in."""
    findings = [{**each.to_json(), "title": title(each), "word": word(each)} for each in diagnosis.findings.values()]
    return {**diagnosis.to_json(), "findings": findings, "log": log, "account": dict(account)}


def finding_parts(finding: Finding, *, figure: str | None = None) -> list[Part]:
    """The section of a report on one finding: verdict, number, advice, figure, table.

    Args:
        finding: that.
        figure: its picture as SVG; by default it is drawn.
    """
    facts = [number(finding)]
    if finding.p_value is not None:
        facts.append(f"p {p_text(finding.p_value)}".replace("p <", "p < "))
    known = "; ".join(each for each in facts if each)
    said = Said(tone(finding), f"{SIGNS[tone(finding)]} {word(finding)}", finding.sentence, known, finding.advice)
    picture = svg(finding.figure(), title=title(finding)) if figure is None and finding.figure is not None else figure
    if finding.table is not None:
        return [said, Beside(picture or "", Table("", *finding.table))]
    return [said] if picture is None else [said, {"": picture}]


def write_diagnosis(
    path: Path,
    diagnosis: Diagnosis,
    *,
    log: str,
    account: Mapping[str, int],
    settings: Mapping[str, Any],
    next_commands: Sequence[str] = (),
) -> Path:
    """Write the HTML page: whole or not at all.

    Args:
        path: where to.
        diagnosis: what was found.
        log: what the log is called.
        account: what was counted on the way in.
        settings: everything needed to run it again.
        next_commands: commands to try next.

    Returns:
        The path.
    """
    findings = list(diagnosis.findings.values())
    rows = [[title(each), f"{SIGNS[tone(each)]} {word(each)}", number(each)] for each in findings]
    more: dict[str, Sequence[Part]] = {title(each): finding_parts(each) for each in findings}
    if account and "coverage" not in diagnosis.findings:  # which tells it
        counts = [[name, f"{count:,}"] for name, count in account.items()]
        more["What came in"] = [Table("", ["counted", ""], counts)]
    return write_report(
        path,
        title=f"Diagnosis of {log}",
        summary=summary(diagnosis),
        comparison=[Table("", ["finding", "verdict", "number and 95% interval"], rows)],
        figures={},
        settings=dict(settings),
        more=more,
        next_commands=next_commands,
    )


def summary(diagnosis: Diagnosis) -> str:
    """What was found and what cannot be known, in two or three paragraphs."""
    findings = list(diagnosis.findings.values())
    head = f"{diagnosis.sessions:,} sessions that showed {diagnosis.impressions:,} documents."
    if diagnosis.as_of:
        head += f" As of {diagnosis.as_of[:16].replace('T', ' ')} UTC."
    parts = {kind: [title(each) for each in findings if tone(each) == kind] for kind in SIGNS}
    lines = [head]
    if parts["bad"]:
        lines.append(f"To heed: {', '.join(parts['bad'])}.")
    if parts["unknown"]:
        lines.append(f"This log cannot tell: {', '.join(parts['unknown'])}. Each section says what is missing.")
    if parts["good"]:
        lines.append(f"In order: {', '.join(parts['good'])}.")
    return "\n\n".join(lines)


def _short(value: float) -> str:
    """Three digits, and thousands apart.

    >>> _short(0.01234), _short(1234567.0), _short(12.0)
    ('0.0123', '1,234,567', '12')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
