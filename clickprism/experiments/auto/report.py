"""The pages of `auto`: report.html for people, auto.json for programs, both from the files of the stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from clickprism._util.files import write_file
from clickprism._util.tables import Table, to_json, to_plain
from clickprism.choice.words import legend
from clickprism.diagnosis.finding import SIGNS
from clickprism.diagnosis.report import finding_parts, summary
from clickprism.evaluation.report import Part, Said, write_report
from clickprism.experiments.auto import words

if TYPE_CHECKING:
    from clickprism.experiments.auto.run import AutoResult

REPORT: Final = "report.html"
JSON: Final = "auto.json"
FORMAT: Final = "clickprism auto"


def as_plain(result: AutoResult, name: str) -> dict[str, Any]:
    """auto.json: every decision with its reason and numbers."""
    bundle = result.stages["bundle"]
    return {
        "format": FORMAT,
        "version": 1,
        "log": {"name": name, **result.stages["read"]["counts"]},
        "chosen": result.chosen,
        "decisions": to_plain(result.decisions),
        "found": result.diagnosis.to_json()["findings"],
        "choice": result.stages["choice"],
        "value": result.stages["value"],
        "unknown": list(result.unknown),
        "next": list(result.steps),
        "bundle": {"folder": "bundle", "version": bundle["version"]} if bundle["version"] else None,
        "report": REPORT,
        "seconds": dict(result.seconds),
    }


def write_pages(result: AutoResult, figures: Mapping[str, str], name: str) -> dict[str, Any]:
    """Write both; `figures` are the SVG of findings by name, `name` that of the log."""
    write_file(result.out / JSON, to_json(as_plain(result, name)) + "\n")
    choice = result.stages["choice"]
    tables = [
        Table("Summary of the diagnosis", ["question", "answer"], _summary_rows(result)),
        Table("What was found", ["finding", "verdict", "estimate and 95% interval"], _found(result)),
    ]
    more: dict[str, list[Part]] = {
        "What was chosen, and why": [
            Said("good", f"{each.stage}: {each.decision}", each.reason) for each in result.decisions
        ],
        "What could not be known": [Said("inconclusive", SIGNS["inconclusive"], each) for each in result.unknown],
        "What to do next": [Said("good", str(place), each) for place, each in enumerate(result.steps, start=1)],
    }
    if choice["trials"]:
        rows = choice["trials"]["rows"]
        more["What was tried, by the log alone"] = [Table("", choice["trials"]["header"], rows), *legend(rows)]
    for key, finding in result.diagnosis.findings.items():
        more[finding.title] = finding_parts(finding, figure=figures.get(key))
    commands = words.commands(result.out, None, bundle=result.bundle is not None)
    write_report(
        result.report,
        title=f"From {name} to a ranker" if result.chosen else f"What {name} can tell",
        summary=_summary(result),
        comparison=tables,
        figures={},
        settings={"seconds": {stage: f"{spent:.1f}" for stage, spent in result.seconds.items()}},
        more=more,
        next_commands=commands,
    )
    return {"files": [REPORT, JSON]}


def _summary(result: AutoResult) -> str:
    read, choice, value = (result.stages[stage] for stage in ("read", "choice", "value"))
    if choice["refused"]:
        return "\n\n".join([read["sentence"], choice["refused"], *choice["instead"]])
    return "\n\n".join(
        [
            read["sentence"],
            f"Chosen: {choice['chosen']}, {choice['words']}.",
            value["sentence"],
            value["advice"],
        ]
    )


def _summary_rows(result: AutoResult) -> list[list[str]]:
    return [[each.question, each.answer] for each in summary(result.diagnosis)]


def _found(result: AutoResult) -> list[list[str]]:
    findings = result.diagnosis.findings.values()
    return [[each.title, each.word, each.number] for each in findings]
