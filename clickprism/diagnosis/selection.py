"""Selection: documents that were never shown have no clicks; only their features can predict their relevance."""

from __future__ import annotations

from typing import Final

import numpy as np

from clickprism._util.tables import Table
from clickprism.click_models.fitted import by_document
from clickprism.data.logged import Logged
from clickprism.diagnosis.finding import Finding, inconclusive
from clickprism.evaluation.concentration import gini

MATERIAL: Final = 0.05  # share of documents never shown, from which selection bias counts as present
TOP: Final = 0.2  # share of the documents that were shown most
UNIT: Final = "of the known documents were never shown"


def selection(log: Logged) -> Finding:
    """Return the share of the known documents that were never shown, among the queries that were asked.

    Inconclusive if the log names only documents that were shown.
    """
    clicks, lists = log.clicks, log.clicks.lists
    if len(log) == 0:
        return inconclusive("selection", "The log has no searches.", "Check how the log was ingested.")
    asked = np.bincount(lists.list_of[clicks.rows], minlength=len(lists)) > 0
    known = asked[lists.list_of]
    impressions = by_document(clicks, clicks.list_impressions)
    never = known & (impressions == 0)
    complete = np.bincount(lists.list_of[never], minlength=len(lists))[asked] == 0
    share, shown = float(never.sum() / known.sum()), np.sort(impressions[known])[::-1]
    details = {
        "documents": int(known.sum()),
        "never_shown": int(never.sum()),
        "queries_shown_completely": float(complete.mean()),
        "top_share": float(shown[: max(1, round(TOP * len(shown)))].sum() / shown.sum()),
        "gini": gini(impressions[known]),
    }
    table = Table(
        "",
        ["", "value"],
        [
            ["documents known for the queries that were asked", f"{details['documents']:,}"],
            ["never shown", f"{details['never_shown']:,} ({share:.1%})"],
            ["queries with all documents shown", f"{details['queries_shown_completely']:.1%}"],
            ["impressions of the 20% of documents shown most", f"{details['top_share']:.1%}"],
            ["Gini coefficient of impressions", f"{details['gini']:.3f}"],
        ],
    )
    if not never.any():
        return inconclusive(
            "selection",
            "The log names only documents that were shown, so it is not known how many others there were.",
            "Log all candidates of each search, or their number.",
            details=details,
            table=table,
        )
    present = share >= MATERIAL
    advice = (
        "Do not treat documents without clicks as irrelevant if they were never shown. Predict them from features, and"
        " show some of them at random in a small share of searches."
        if present
        else "Nothing to do: nearly all known documents were shown."
    )
    return Finding(
        "selection",
        "present" if present else "absent",
        f"{share:.0%} of the {details['documents']:,} documents known for these queries were never shown.",
        advice,
        estimate=share,
        unit=UNIT,
        details=details,
        table=table,
    )
