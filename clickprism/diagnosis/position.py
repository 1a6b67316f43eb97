"""Position bias: are lower positions observed less often, by how much, and what does that do to a ranking by clicks?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from clickprism._util.tables import Table, to_plain
from clickprism.data.logged import Logged
from clickprism.diagnosis.finding import Finding, values_of
from clickprism.log_model.model import LogModel
from clickprism.log_model.results import Agreement, Verdict, p_text
from clickprism.types import Float64, Int64

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES: Final = {"allpairs": "documents shown at several positions", "randomised": "randomised searches"}


def position(log: Logged, model: LogModel) -> Finding:
    """Return whether lower positions are observed less often; the curve is that of the model."""
    test, curve = model.tests["position"], model.curve
    average = f"Lower positions are observed {test.estimate:.0%} as often as position 1 on average"
    interval = f"({curve.confidence:.0%} interval {test.lower:.0%} to {test.upper:.0%})"
    source = _source(model)
    values = values_of(test)
    if test.verdict == "present":
        sentence = f"There is position bias. {average} {interval}.{source}"
        advice = (
            "Correct clicks for position bias before you learn from them. `clickprism relevance estimate` does it with"
            " this curve"
        ) + ("; `clickprism auto` trains a ranker from corrected clicks." if log.has_features else ".")
    elif test.verdict == "absent":
        sentence = f"There is no position bias that matters. {average} {interval}.{source}"
        advice = "Nothing to do: clicks do not need a correction for the position."
    else:
        possible = (
            f" Lower positions may be observed {test.lower:.0%} to {test.upper:.0%} as often as position 1 on average"
            f" ({curve.confidence:.0%} interval)."
        )
        estimated = np.isfinite(test.lower) and "not identified" not in model.linkage.identified
        known = possible if estimated else f" Reason: {test.note}." if test.note else ""
        sentence = f"The log does not show whether there is position bias.{known}{source}"
        advice = "Show some documents at several positions: see Identifiability."
    rates, effect = click_rates(log), top_changes(log, model)
    feedback = model.feedback.verdict == "present"
    others = [_agreement(name, each, feedback=feedback) for name, each in model.references.items()]
    return Finding(
        "position",
        test.verdict,
        sentence + "".join(others),
        advice,
        **{
            **values,
            "details": {
                **values["details"],
                "click_rate": to_plain(rates),
                "top_changes": effect,
                "ranking": ranking_effect(effect, test.verdict),
                "references": {name: _plain(each) for name, each in model.references.items()},
                "unsupported": dict(model.unsupported),
                "steepness": model.steepness,
            },
        },
        table=_table(model, rates),
        figure=_figure(model, rates),
    )


def click_rates(log: Logged) -> Float64:
    """Return the click rate at each position relative to position 1, [positions]; nan where nothing was shown."""
    clicks = log.clicks
    shown = np.bincount(clicks.positions - 1, weights=clicks.list_impressions)
    clicked = np.bincount(clicks.positions - 1, weights=clicks.clicks)
    rate = np.divide(clicked, shown, out=np.full(len(shown), np.nan), where=shown > 0)
    return rate / rate[0] if rate[0] > 0 else np.full(len(rate), np.nan)


def top_changes(log: Logged, model: LogModel) -> float:
    """Return the share of queries whose best document is another one if documents are ranked by their click rate.

    The click rate of a pair is its relevance times the average observation at the positions where it was shown, as the
    model has both, so that noise in single clicks does not count. Queries with one document are excluded.
    """
    relevance = model.relevance
    if len(relevance) == 0:
        return 0.0
    query = log.clicks.lists.list_of[relevance.rows]
    rate = relevance.value * relevance.weight / np.maximum(relevance.impressions, 1)
    best, clicked = (_best(query, values) for values in (relevance.value, rate))
    several = np.bincount(query)[np.unique(query)] > 1
    return float((best != clicked)[several].mean()) if several.any() else 0.0


def ranking_effect(share: float, verdict: Verdict) -> str:
    """Return what position bias does to a ranking, as a sentence."""
    if verdict == "inconclusive":
        return "Unknown: a ranking by click rate may repeat position bias."
    if verdict == "absent":
        return "No effect was found: documents can be ranked by their click rate."
    return (
        f"In {share:.0%} of the queries, the document with the highest click rate is not the one with the highest"
        " estimated relevance."
    )


def _best(query: Int64, values: Float64) -> Int64:
    """Return the index of the largest value of each query; the first of equal ones."""
    order = np.lexsort((np.arange(len(values)), -values, query)).astype(np.int64)
    return np.asarray(order[np.concatenate([[True], np.diff(query[order]) > 0])])


def _source(model: LogModel) -> str:
    """Return what identifies the curve, where that is a weaker source than documents or randomisation."""
    weak = [each for each in model.linkage.identified if each in ("features", "not identified")]
    if not weak:
        return ""
    if "not identified" in weak:
        return " Some positions are not identified: there the curve is a smooth continuation, not an estimate."
    rising = " It rises above 100%, which makes this assumption doubtful." if model.tests["position"].lower > 1 else ""
    return (
        " The curve is identified by features only: no documents link all positions, so it relies on the assumption"
        f" that documents with similar features are equally relevant.{rising}"
    )


def _agreement(name: str, agreement: Agreement, *, feedback: bool) -> str:
    source = NAMES.get(name, name)
    if agreement.agrees:
        return f" A second estimate, from {source} only, {agreement.words}."
    why = " This is expected, since the engine reacts to clicks." if feedback and name == "allpairs" else ""
    other = float(agreement.curve.values[agreement.largest - 1])
    return (
        f" A second estimate, from {source} only, differs: it is {other:.0%} at position {agreement.largest}, where"
        f" this curve is {agreement.ratio * other:.0%} ({p_text(agreement.p_value)}).{why}"
    )


def _plain(agreement: Agreement) -> dict[str, object]:
    return {
        "curve": to_plain(agreement.curve),
        "agrees": agreement.agrees,
        "p_value": agreement.p_value,
        "largest": agreement.largest,
        "ratio": agreement.ratio,
    }


def _table(model: LogModel, rates: Float64) -> Table:
    curve, others = model.curve, {name: each.curve for name, each in model.references.items()}

    def cell(values: Float64, at: int) -> str:
        return f"{values[at]:.3f}" if at < len(values) and np.isfinite(values[at]) else ""

    rows = [
        [
            str(at + 1),
            cell(curve.values, at),
            f"{cell(curve.lower, at)} to {cell(curve.upper, at)}" if np.isfinite(curve.lower[at]) else "",
            model.linkage.identified[at],
            *(cell(other.values, at) for other in others.values()),
            cell(rates, at),
        ]
        for at in range(len(curve))
    ]
    header = ["position", "observation", f"{curve.confidence:.0%} interval", "identified by", *others, "click rate"]
    return Table("", header, rows)


def _figure(model: LogModel, rates: Float64) -> Callable[[], Figure]:
    def draw() -> Figure:
        from clickprism.evaluation.plots import observation_curve

        curve = model.curve
        lines = {"observation": curve.values, **{name: each.curve.values for name, each in model.references.items()}}
        lines["click rate"] = rates
        drawn = {name: values for name, values in lines.items() if len(values) and values[0] > 0}
        return observation_curve(None, drawn, intervals={"observation": (curve.lower, curve.upper)})

    return draw
