"""A diagnosis for people and programs: tables for a terminal, JSON, and one HTML page.

All three start with the same summary: is there position bias, how much, what it does to the ranking, whether relevance
can be learned from the log, and what to do next.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from clickprism._util.tables import Table, counted
from clickprism.diagnosis.finding import SEE_COVERAGE, Diagnosis, Finding, Json
from clickprism.evaluation.plots import svg
from clickprism.evaluation.report import Beside, Part, Said, write_report
from clickprism.log_model.results import p_text

FORMAT: Final = "clickprism diagnosis"
VERSION: Final = 2
WIDTH: Final = 76  # width of a column of sentences
FIRST: Final = ("coverage", "identifiability", "position")  # advice of these findings comes first
YES_NO: Final = {"present": "Yes.", "absent": "No.", "inconclusive": "The log does not show it."}


@final
@dataclass(frozen=True)
class Answer:
    """A question of the summary, and its answer."""

    question: str
    answer: str


@final
@dataclass(frozen=True)
class Report:
    """A `Diagnosis` as plain values: what `diagnose --json` prints and diagnosis.json holds.

    It also has the name of the log, answers to the five questions that everybody asks first, and what was counted
    while the log was read, by name.
    """

    log: str
    as_of: str
    sessions: int
    impressions: int
    summary: tuple[Answer, ...]
    curve: Mapping[str, Json] | None
    findings: tuple[Mapping[str, Json], ...]
    account: Mapping[str, int] = field(default_factory=dict)
    format: str = FORMAT
    version: int = VERSION

    def tables(self) -> list[Table]:
        """Return the summary, the findings, and what to do."""
        answers = [row for each in self.summary for row in wrapped([each.question], each.answer)]
        findings = [row for each in self.findings for row in wrapped([each["title"], each["word"]], each["sentence"])]
        steps = [row for each in self.findings if _open(each) for row in wrapped([each["title"]], each["advice"])]
        size = f"{counted(self.sessions, 'session')}, {counted(self.impressions, 'document')} shown"
        made = [Table(size, ["summary", ""], answers), Table("", ["finding", "verdict", "explanation"], findings)]
        return [*made, Table("", ["what to do", ""], steps)] if steps else made


def report_of(diagnosis: Diagnosis, *, log: str, account: Mapping[str, int]) -> Report:
    """Return a diagnosis as plain values."""
    plain = diagnosis.to_json()
    plain["findings"] = tuple(plain["findings"])
    return Report(log=log, summary=tuple(summary(diagnosis)), account=dict(account), **plain)


def summary(diagnosis: Diagnosis) -> list[Answer]:
    """Return the answers to the questions that everybody asks first, as far as these were part of the diagnosis."""
    position, links = diagnosis.findings.get("position"), diagnosis.findings.get("identifiability")
    answers = []
    if position is not None:
        answers.append(Answer("Is there position bias?", YES_NO[position.verdict]))
        answers.append(Answer("How much?", _how_much(diagnosis, position)))
        ranking = str(position.details.get("ranking", "Unknown without a position curve."))
        answers.append(Answer("What does it do to the ranking?", ranking))
    if links is not None:
        answers.append(Answer("Can relevance be learned?", links.sentence))
    return [*answers, Answer("What to do next?", _next(diagnosis))]


def finding_parts(finding: Finding, *, figure: str | None = None) -> list[Part]:
    """Return the section of a page on one finding: verdict, estimate, advice, figure and table.

    Args:
        finding: The finding.
        figure: Its figure as SVG; by default it is drawn.
    """
    facts = [f"Estimate: {finding.number} {finding.unit}".rstrip() if finding.number else ""]
    facts.append("" if finding.p_value is None else p_text(finding.p_value))
    known = "; ".join(each for each in facts if each)
    said = Said(finding.tone, finding.word, finding.sentence, known, finding.advice)
    picture = svg(finding.figure(), title=finding.title) if figure is None and finding.figure is not None else figure
    if finding.table is not None:
        return [said, Beside(picture or "", finding.table)]
    return [said] if picture is None else [said, {"": picture}]


def write_page(
    path: Path,
    diagnosis: Diagnosis,
    *,
    log: str,
    account: Mapping[str, int],
    settings: Mapping[str, Any],
    next_commands: Sequence[str] = (),
) -> Path:
    """Write the report as one HTML page, and return its path.

    `account` is what was counted while the log was read, `settings` what is needed to run the diagnosis again.
    """
    findings = list(diagnosis.findings.values())
    curve = diagnosis.findings.get("position")
    figures = {}
    if curve is not None and curve.figure is not None:
        figures["How often each position is observed, relative to position 1"] = svg(curve.figure(), title=curve.title)
    rows = [[each.title, each.word, each.sentence] for each in findings]
    details: dict[str, Sequence[Part]] = {}
    for each in findings:
        details[each.title] = finding_parts(each, figure="" if each is curve and figures else None)
    if account and "coverage" not in diagnosis.findings:  # which has the account in its table
        details["Rows read"] = [Table("", ["", "count"], [[name, f"{count:,}"] for name, count in account.items()])]
    made = f" Diagnosis of {diagnosis.as_of[:16].replace('T', ' ')} UTC." if diagnosis.as_of else ""
    return write_report(
        path,
        title=f"Diagnosis of {log}",
        summary=f"{counted(diagnosis.sessions, 'session')}, {counted(diagnosis.impressions, 'document')} shown.{made}",
        comparison=[Table("", ["question", "answer"], [[each.question, each.answer] for each in summary(diagnosis)])],
        figures=figures,
        settings=dict(settings),
        more={"All findings": [Table("", ["finding", "verdict", "explanation"], rows)]},
        folded=details,
        next_commands=next_commands,
    )


def wrapped(cells: list[str], text: str, width: int = WIDTH) -> list[list[str]]:
    """Return the rows of a table whose last column is a text of several lines.

    >>> wrapped(["trust"], "one two three", width=8)
    [['trust', 'one two'], ['', 'three']]
    """
    lines = textwrap.wrap(text, width, break_on_hyphens=False) or [""]
    return [[*(cell if number == 0 else "" for cell in cells), line] for number, line in enumerate(lines)]


def _open(finding: Mapping[str, Json]) -> bool:
    return bool(finding["advice"]) and not finding["word"].startswith("✓")


def _how_much(diagnosis: Diagnosis, position: Finding) -> str:
    """Return the average of the curve and its lowest position."""
    curve = diagnosis.curve
    if curve is None or len(curve) < 2:
        return "No position curve could be estimated."
    if position.verdict == "inconclusive":
        return f"Unknown. {position.sentence.partition('. ')[2]}"
    last = len(curve)
    return (
        f"{position.sentence.partition('. ')[2]} Position {last} is observed {curve.values[-1]:.0%} as often"
        f" ({curve.lower[-1]:.0%} to {curve.upper[-1]:.0%})."
    )


def _next(diagnosis: Diagnosis) -> str:
    """Return the most important step, and the findings that need a look after it."""
    todo = [each for each in diagnosis.findings.values() if each.tone != "good" and each.advice]
    todo.sort(key=lambda each: (each.name not in FIRST, each.tone == "inconclusive"))
    if not todo:
        return "Nothing: no finding needs action."
    rest = ", ".join(each.title for each in todo[1:] if each.advice != SEE_COVERAGE)
    return todo[0].advice + (f" Then see: {rest}." if rest else "")
