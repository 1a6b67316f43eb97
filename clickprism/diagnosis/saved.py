"""Save a diagnosis as plain values, tables and figures, and read it again, so that every run writes the same report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from clickprism._util.tables import Table
from clickprism.diagnosis.finding import Diagnosis, Finding
from clickprism.errors import DataError
from clickprism.log_model.results import Curve

REMEDY = "Remove stages/diagnosis.json from the folder, and run the command again"


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
    interval = saved["interval"]
    return Finding(
        saved["name"],
        saved["verdict"],
        saved["sentence"],
        saved["advice"],
        estimate=saved["estimate"],
        unit=saved["unit"],
        interval=None if interval is None else (interval[0], interval[1]),
        p_value=saved["p_value"],
        details=saved["details"],
        table=None if table is None else Table(**table),
    )


def _curve(saved: Mapping[str, Any] | None) -> Curve | None:
    if saved is None:
        return None
    ends = {name: np.array(saved[name], dtype=np.float64) for name in ("values", "lower", "upper")}
    return Curve(**{**saved, **ends})
