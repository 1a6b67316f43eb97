"""Findings as `auto` keeps them: plain values, tables and pictures, from which the same report is made every time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clickprism.diagnosis.finding import Diagnosis, Finding
from clickprism.errors import DataError

ANEW = "Remove stages/diagnosis.json of the folder: it is made anew"


def kept_diagnosis(diagnosis: Diagnosis) -> dict[str, Any]:
    """All of a diagnosis as plain values: what `to_json` says, and the table and the SVG of each finding."""
    from clickprism.evaluation.plots import svg

    tables, figures = {}, {}
    for name, finding in diagnosis.findings.items():
        if finding.table is not None:
            header, rows = finding.table
            tables[name] = {"header": list(header), "rows": [list(row) for row in rows]}
        if finding.figure is not None:
            figures[name] = svg(finding.figure(), title=f"{name}: {finding.sentence}")
    return {"diagnosis": diagnosis.to_json(), "tables": tables, "figures": figures}


def diagnosis_of(kept: Mapping[str, Any]) -> Diagnosis:
    """The diagnosis again, without its figures; `kept["figures"]` has them as SVG.

    >>> found = Finding("position", "present", "The first is seen most.", "Debias.", number=0.4, interval=(0.3, 0.5))
    >>> again = diagnosis_of(kept_diagnosis(Diagnosis({"position": found}, sessions=9, impressions=90)))
    >>> again["position"].interval, again.verdict("position"), again.sessions
    ((0.3, 0.5), 'present', 9)
    """
    try:
        told, tables = kept["diagnosis"], kept["tables"]
        findings = {each["name"]: _finding(each, tables.get(each["name"])) for each in told["findings"]}
        return Diagnosis(findings, told["sessions"], told["impressions"], told["as_of"])
    except (KeyError, TypeError):
        raise DataError("the diagnosis of the folder is damaged", remedy=ANEW) from None


def _finding(told: Mapping[str, Any], table: Mapping[str, Any] | None) -> Finding:
    low_high = told["interval"]
    return Finding(
        told["name"],
        told["verdict"],
        told["sentence"],
        told["advice"],
        number=told["number"],
        unit=told["unit"],
        interval=None if low_high is None else (low_high[0], low_high[1]),
        p_value=told["p_value"],
        details=told["details"],
        table=None if table is None else (table["header"], table["rows"]),
    )
