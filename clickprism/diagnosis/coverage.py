"""Coverage and selection: is there enough data, which fields are missing, and how many documents were never shown?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from clickprism._util.grouping import same_lists
from clickprism._util.tables import Table, counted
from clickprism.click_models.fitted import by_document
from clickprism.data.logged import ONLY_CLICKS, Logged
from clickprism.diagnosis.finding import Finding, inconclusive
from clickprism.evaluation.concentration import gini

CLICKS: Final = 1000  # number of clicks that is enough to learn from
QUERIES: Final = 10  # number of queries with clicks that is enough to learn from
FEW_QUERIES: Final = 100
REPEATS: Final = 2.0  # searches per query; with fewer, single documents have almost no clicks
SEVERAL: Final = 0.01  # share of the documents that were shown at several positions
SHOWN: Final = "Log every result that users were shown, with its position, and whether it was clicked."
HEAD: Final = 0.01  # share of the queries
USES: Final = {
    "days": "drift, popularity and feedback need them",
    "the ranker of each list": "counterfactual evaluation can use it",
    "which positions were randomised": "they would identify the position curve directly",
    "features of documents": "coupling needs them, and no ranker can be trained without them",
    "which clicks belong to one session": "interaction needs them",
    "what users observed": "a viewport signal would measure observation directly",
}
LABELS: Final = {
    "searches": "searches",
    "queries": "queries",
    "queries_once": "queries with one search",
    "head_share": "searches for the 1% most frequent queries",
    "lists": "different ranked lists",
    "documents": "documents",
    "documents_shown": "documents shown",
    "documents_at_several_positions": "documents shown at several positions",
    "positions": "positions",
    "clicks": "clicks",
    "features": "features",
    "days": "days",
    "rankers": "rankers",
    "randomised": "randomised impressions",
}
NEVER_SHOWN: Final = {
    "documents": "documents known for the queries that were asked",
    "never_shown": "never shown",
    "queries_shown_completely": "queries with all documents shown",
    "top_share": "impressions of the 20% of documents shown most",
    "gini": "Gini coefficient of impressions",
}
MATERIAL: Final = 0.05  # share of documents never shown, from which selection bias counts as present
TOP: Final = 0.2  # share of the documents that were shown most


def coverage(log: Logged) -> Finding:
    """Return whether a log has enough data; the table says how much, and which fields are missing."""
    if len(log) == 0:
        why = "The log has no searches that show a document."
        advice = "Check how the log was ingested: clickprism log info LOG."
        return Finding("coverage", "absent", why, advice, estimate=0.0, unit="clicks")
    facts = count_log(log)
    if log.has_only_clicks:
        table = _table(LABELS, facts)
        return Finding("coverage", "absent", ONLY_CLICKS, SHOWN, 0.0, "results without a click", table=table)
    enough = facts["clicks"] >= CLICKS and facts["queries_clicked"] >= QUERIES
    scarce = _scarce(facts)
    queries = "1 query" if facts["queries"] == 1 else f"{facts['queries']:,} queries"
    searches = "1 search" if facts["searches"] == 1 else f"{facts['searches']:,} searches"
    size = f"{searches} for {queries}, {counted(facts['clicks'], 'click')}"
    size += f" ({facts['clicks_per_search']:.2f} per search)"
    *others, last = facts["missing"] or [""]
    missing = f" The log does not record {', '.join(others)}{' or ' * bool(others)}{last}." if last else ""
    return Finding(
        "coverage",
        "present" if enough else "absent",
        f"The log has {'enough' if enough else 'too little'} data: {size}."
        + (f" More of these would make results more precise: {', '.join(scarce)}." if scarce else "")
        + missing,
        _advice(facts, enough),
        estimate=float(facts["clicks"]),
        unit="clicks",
        details=facts,
        table=_table(
            LABELS,
            facts,
            [
                *(["not recorded", f"{name} ({USES[name]})"] for name in facts["missing"]),
                *([name, f"{count:,}"] for name, count in facts["account"].items()),
            ],
        ),
    )


def count_log(log: Logged) -> dict[str, Any]:
    """Return the counts of a log that shows something, by name."""
    clicks, lists = log.clicks, log.clicks.lists
    query = lists.list_of[clicks.rows[clicks.offsets[:-1]]]
    searches = np.bincount(query, weights=clicks.impressions, minlength=len(lists))
    asked = np.sort(searches[searches > 0])[::-1]
    group, _ = same_lists(clicks.offsets, clicks.rows, clicks.positions, np.zeros(0, dtype=np.int64))
    clicked = np.bincount(lists.list_of[clicks.rows], weights=clicks.clicks, minlength=len(lists)) > 0
    span = clicks.max_position + 1
    positions = np.bincount(np.unique(clicks.rows * span + clicks.positions) // span, minlength=lists.documents)
    recorded = {
        "days": log.days is not None,
        "the ranker of each list": log.policy is not None,
        "which positions were randomised": log.randomised is not None,
        "features of documents": log.has_features,
        "which clicks belong to one session": clicks.are_patterns,
        "what users observed": clicks.seen is not None,
    }
    return {
        "searches": clicks.sessions,
        "queries": len(asked),
        "queries_clicked": int(clicked.sum()),
        "queries_once": int((asked == 1).sum()),
        "head_share": float(asked[: max(1, round(HEAD * len(asked)))].sum() / asked.sum()),
        "searches_per_query": clicks.sessions / len(asked),
        "lists": int(group.max()) + 1,
        "documents": lists.documents,
        "documents_shown": int((positions > 0).sum()),
        "documents_at_several_positions": int((positions > 1).sum()),
        "positions": clicks.max_position,
        "impressions": int(clicks.list_impressions.sum()),
        "clicks": int(clicks.clicks.sum()),
        "clicks_per_search": float(clicks.clicks.sum() / clicks.sessions),
        "days": None if log.days is None else len(np.unique(log.days)),
        "rankers": None if log.policy is None else [log.policies[number] for number in np.unique(log.policy)],
        "randomised": None if log.randomised is None else int(clicks.list_impressions[log.randomised].sum()),
        "features": lists.features.shape[1],
        "missing": [name for name, known in recorded.items() if not known],
        "account": dict(log.account),
    }


def _scarce(facts: dict[str, Any]) -> list[str]:
    few = {
        f"clicks (fewer than {CLICKS:,})": facts["clicks"] < CLICKS,
        f"queries with clicks ({facts['queries_clicked']})": facts["queries_clicked"] < FEW_QUERIES,
        f"searches per query ({facts['searches_per_query']:.1f})": facts["searches_per_query"] < REPEATS,
        "documents shown at several positions": facts["documents_at_several_positions"]
        < SEVERAL * facts["documents_shown"],
    }
    return [name for name, scarce in few.items() if scarce]


def _advice(facts: dict[str, Any], enough: bool) -> str:
    if not enough:
        return "Collect more searches first. The findings below may be due to chance."
    wanted = [name for name in ("features of documents", "days") if name in facts["missing"]]
    quarantined = sum(count for name, count in facts["account"].items() if "quarantine" in name)
    parts = [f"Log {name}: {USES[name]}." for name in wanted]
    if quarantined:
        parts.append(f"{quarantined:,} rows were quarantined; `clickprism log quarantine LOG` shows why.")
    return " ".join(parts) or "Nothing to do."


def _table(labels: dict[str, str], facts: dict[str, Any], more: Sequence[Sequence[str]] = ()) -> Table:
    """Return the known facts under their labels: counts, shares and names."""

    def text(name: str, value: Any) -> str:
        if isinstance(value, list):
            return ", ".join(value)
        return f"{value:,}" if isinstance(value, int) else f"{value:.3f}" if name == "gini" else f"{value:.1%}"

    rows = [[label, text(name, facts[name])] for name, label in labels.items() if facts[name] is not None]
    return Table("", ["", "value"], [*rows, *more])


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
    table = _table(NEVER_SHOWN, details)
    if not never.any():
        why = "The log names only documents that were shown, so it is not known how many others there were."
        advice = "Log all candidates of each search, or their number."
        return inconclusive("selection", why, advice, details=details, table=table)
    present = share >= MATERIAL
    advice = (
        "Do not treat documents without clicks as irrelevant if they were never shown. Predict them from features, and"
        " show some of them at random in a small share of searches."
    )
    return Finding(
        "selection",
        "present" if present else "absent",
        f"{share:.0%} of the {details['documents']:,} documents known for these queries were never shown.",
        advice if present else "Nothing to do: nearly all known documents were shown.",
        estimate=share,
        unit="of the known documents were never shown",
        details=details,
        table=table,
    )
