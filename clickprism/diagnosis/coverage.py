"""Coverage: what a log has, what is scarce in it, and what it does not tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from clickprism._util.grouping import same_lists
from clickprism.data.logged import Logged
from clickprism.diagnosis.clusters import shown
from clickprism.diagnosis.finding import Finding
from clickprism.errors import SettingError
from clickprism.types import Clicks, Float64

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME: Final = "coverage"
HEAD: Final = 0.01  # of the queries
FEW_QUERIES: Final = 100


@final
@dataclass(frozen=True)
class CoverageSettings:
    """When there is enough to learn from.

    Attributes:
        clicks: in all, at least.
        queries: that were clicked in, at least.
        repeats: searches of a query, in the mean, at least; with fewer, documents say little by themselves.
    """

    clicks: int = 1000
    queries: int = 10
    repeats: float = 2.0

    def __post_init__(self) -> None:
        for name in ("clicks", "queries", "repeats"):
            if not getattr(self, name) > 0:
                raise SettingError(name, getattr(self, name), "be above 0")


def coverage(logged: Logged, *, settings: CoverageSettings | None = None) -> Finding:
    """What a log has: "present" if there is enough to learn from; the sentence says what is scarce."""
    chosen, logged = settings or CoverageSettings(), shown(logged)
    clicks = logged.clicks
    if len(logged) == 0:
        return Finding(
            NAME,
            "absent",
            "The log has no searches that show anything.",
            "Give a log with searches.",
            number=0.0,
            unit="clicks",
            details={"searches": 0, "account": dict(logged.account)},
        )
    facts = count_all(logged)
    scarce = _scarce(facts, chosen)
    enough = facts["clicks"] >= chosen.clicks and facts["queries_clicked"] >= chosen.queries
    has = (
        f"{facts['searches']:,} searches of {facts['queries']:,} queries, {facts['documents_shown']:,} documents down"
        f" to position {facts['positions']}, {facts['clicks']:,} clicks ({facts['clicks_a_search']:.2f} a search)"
    )
    missing = f" It does not tell {', '.join(facts['missing'])}." if facts["missing"] else ""
    return Finding(
        NAME,
        "present" if enough else "absent",
        f"{'Enough' if enough else 'Too little'} to learn from: {has}."
        + (f" Scarce: {'; '.join(scarce)}." if scarce else "")
        + missing,
        _advice(facts, scarce, enough),
        number=float(facts["clicks"]),
        unit="clicks",
        details=facts,
        table=_table(facts),
        figure=_picture(clicks),
    )


def count_all(logged: Logged) -> dict[str, Any]:
    """The counts of a log that shows something, by name."""
    clicks, lists = logged.clicks, logged.clicks.lists
    searches = _searches(clicks)
    asked = np.sort(searches[searches > 0])[::-1]
    head = max(1, round(HEAD * len(asked)))
    owner = np.repeat(np.arange(len(clicks)), np.diff(clicks.offsets))
    by_list = np.bincount(owner, weights=clicks.clicks, minlength=len(clicks))
    group, _ = same_lists(clicks.offsets, clicks.rows, clicks.positions, np.zeros(0, dtype=np.int64))
    distinct = int(group.max()) + 1
    clicked = np.bincount(lists.list_of[clicks.rows], weights=clicks.clicks, minlength=len(lists)) > 0
    seen_at = np.unique(clicks.rows * (clicks.max_position + 1) + clicks.positions) // (clicks.max_position + 1)
    places = np.bincount(seen_at, minlength=lists.documents)
    told = {
        "days": logged.days is not None,
        "which ranker made each list": logged.policy is not None,
        "what chance ordered": logged.randomised is not None,
        "features of documents": logged.has_features,
        "what was clicked together": clicks.are_patterns,
        "what was seen": clicks.seen is not None,
    }
    return {
        "searches": clicks.sessions,
        "queries": len(asked),
        "queries_clicked": int(clicked.sum()),
        "queries_once": int((asked == 1).sum()),
        "documents": lists.documents,
        "documents_shown": int((places > 0).sum()),
        "documents_at_several_positions": int((places > 1).sum()),
        "positions": clicks.max_position,
        "impressions": int(clicks.list_impressions.sum()),
        "clicks": int(clicks.clicks.sum()),
        "clicks_a_search": float(clicks.clicks.sum() / clicks.sessions),
        "searches_with_click": float(clicks.impressions[by_list > 0].sum() / clicks.sessions)
        if clicks.are_patterns
        else None,
        "lists": distinct,
        "searches_a_list": clicks.sessions / distinct,
        "searches_a_query": clicks.sessions / len(asked),
        "head_share": float(asked[:head].sum() / asked.sum()),
        "once_share_of_queries": float((asked == 1).mean()),
        "days": None if logged.days is None else len(np.unique(logged.days)),
        "rankers": None if logged.policy is None else [logged.policies[place] for place in np.unique(logged.policy)],
        "randomised": None if logged.randomised is None else int(clicks.list_impressions[logged.randomised].sum()),
        "features": lists.features.shape[1],
        "missing": [name for name, known in told.items() if not known],
        "account": dict(logged.account),
    }


def _searches(clicks: Clicks) -> Float64:
    """How often each query was asked, [queries]."""
    query = clicks.lists.list_of[clicks.rows[clicks.offsets[:-1]]]
    return np.bincount(query, weights=clicks.impressions, minlength=len(clicks.lists)).astype(np.float64)


def _scarce(facts: dict[str, Any], settings: CoverageSettings) -> list[str]:
    scarce = []
    if facts["clicks"] < settings.clicks:
        scarce.append(f"clicks, {settings.clicks:,} are wanted")
    if facts["queries_clicked"] < FEW_QUERIES:
        scarce.append(f"queries with clicks, {facts['queries_clicked']}")
    if facts["searches_a_query"] < settings.repeats:
        scarce.append(f"repeats, {facts['searches_a_query']:.1f} searches a query")
    if facts["documents_at_several_positions"] < 0.01 * facts["documents_shown"]:
        scarce.append("documents seen at several positions")
    return scarce


def _advice(facts: dict[str, Any], scarce: list[str], enough: bool) -> str:
    if not enough:
        return "Collect more before anything is learned from it; what follows may be said by chance."
    quarantined = sum(count for name, count in facts["account"].items() if "quarantine" in name)
    parts = []
    if scarce:
        parts.append("What is scarce limits the methods that rest on it: see the findings below.")
    if "features of documents" in facts["missing"]:
        parts.append("Log features of documents: without them no ranker can be trained.")
    if quarantined:
        parts.append(f"{quarantined:,} rows were put into quarantine on the way in: look at why.")
    return " ".join(parts) or "Nothing to do."


def _table(facts: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    once = f"{facts['queries_once']:,} ({facts['once_share_of_queries']:.0%})"
    rows = [
        ["searches", f"{facts['searches']:,}"],
        ["queries", f"{facts['queries']:,}"],
        ["queries asked once", once],
        ["searches of the 1% most frequent queries", f"{facts['head_share']:.1%}"],
        ["documents shown", f"{facts['documents_shown']:,} of {facts['documents']:,}"],
        ["documents seen at several positions", f"{facts['documents_at_several_positions']:,}"],
        ["positions", f"{facts['positions']}"],
        ["different ranked lists", f"{facts['lists']:,} ({facts['searches_a_list']:.1f} searches each)"],
        ["clicks", f"{facts['clicks']:,} ({facts['clicks_a_search']:.2f} a search)"],
        ["days", "not told" if facts["days"] is None else str(facts["days"])],
        ["rankers", "not told" if facts["rankers"] is None else ", ".join(facts["rankers"])],
        ["impressions that chance placed", "not told" if facts["randomised"] is None else f"{facts['randomised']:,}"],
        ["features", str(facts["features"])],
    ]
    return ["what", "value"], [*rows, *([name, f"{count:,}"] for name, count in facts["account"].items())]


def _picture(clicks: Clicks) -> Callable[[], Figure]:
    def draw() -> Figure:
        from clickprism.diagnosis.pictures import lines_by

        places = clicks.positions - 1
        shown_at = np.bincount(places, weights=clicks.list_impressions)
        clicked = np.bincount(places, weights=clicks.clicks)
        rate = np.divide(clicked, shown_at, out=np.full(len(clicked), np.nan), where=shown_at > 0)
        return lines_by(np.arange(1.0, len(rate) + 1), {"": rate}, xlabel="position", ylabel="clicks an impression")

    return draw
