"""Position bias: are lower positions observed less often, by how much, and what does that do to a ranking by clicks?

It is a finding of a diagnosis, and what `bias position` and `bias trust` print: a sentence, tables, and the same facts
as JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from clickprism._util.tables import Table, as_text, to_plain
from clickprism.data.logged import Logged
from clickprism.diagnosis.finding import Finding, spans, values_of
from clickprism.log_model.model import LogModel
from clickprism.log_model.results import Agreement, Curve, Test, Verdict, p_text
from clickprism.types import Float64, Int64

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES: Final = {"allpairs": "documents shown at several positions", "randomised": "randomised searches"}
STATED: Final = {
    "present": "There is {bias}.",
    "absent": "There is no {bias} that matters.",
    "inconclusive": "The log does not show whether there is {bias}.",
}
ADVICE: Final = {
    "present": "Correct clicks for position bias before you learn from them. `clickprism relevance estimate` does it"
    " with this curve",
    "absent": "Nothing to do: clicks do not need a correction for the position.",
    "inconclusive": "Show some documents at several positions: see Identifiability.",
}


def position(log: Logged, model: LogModel) -> Finding:
    """Return whether lower positions are observed less often; the curve is that of the model."""
    test, rates, effect = model.tests["position"], click_rates(log), top_changes(log, model)
    advice = ADVICE[test.verdict]
    if test.verdict == "present":
        advice += "; `clickprism auto` trains a ranker from corrected clicks." if log.has_features else "."
    others = [_agreement(name, each, model) for name, each in model.references.items()]
    values = values_of(test)
    values["details"] |= {
        "click_rate": to_plain(rates),
        "top_changes": effect,
        "ranking": ranking_effect(effect, test.verdict),
        "references": {name: to_plain(each) for name, each in model.references.items()},
        "unsupported": dict(model.unsupported),
        "steepness": model.steepness,
    }
    return Finding(
        "position",
        test.verdict,
        " ".join([_stated(model), *weak_sources(model), *others]),
        advice,
        **values,
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


def _agreement(name: str, agreement: Agreement, model: LogModel) -> str:
    source = NAMES.get(name, name)
    if agreement.agrees:
        return f"A second estimate, from {source} only, {agreement.words}."
    expected = model.feedback.verdict == "present" and name == "allpairs"
    why = " This is expected, since the engine reacts to clicks." if expected else ""
    other = float(agreement.curve.values[agreement.largest - 1])
    return (
        f"A second estimate, from {source} only, differs: it is {other:.0%} at position {agreement.largest}, where"
        f" this curve is {agreement.ratio * other:.0%} ({p_text(agreement.p_value)}).{why}"
    )


def _table(model: LogModel, rates: Float64) -> Table:
    curve, others = model.curve, {name: each.curve.values for name, each in model.references.items()}

    def cell(values: Float64, at: int) -> str:
        return f"{values[at]:.3f}" if at < len(values) and np.isfinite(values[at]) else ""

    rows = [
        [
            str(at + 1),
            cell(curve.values, at),
            f"{cell(curve.lower, at)} to {cell(curve.upper, at)}" if np.isfinite(curve.lower[at]) else "",
            model.linkage.identified[at],
            *(cell(values, at) for values in [*others.values(), rates]),
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


def position_text(model: LogModel, *, by: str | None = None, truth: Float64 | None = None) -> str:
    """Return the curve as text: whether there is position bias, its size, and tables of the curve and its sources.

    Args:
        model: The fitted model.
        by: Column whose values are the contexts of the model.
        truth: True observation at each position of a simulated log, [positions].
    """
    curve, facts = model.tables()
    if truth is not None:
        relative = truth / truth[0]
        shown = [f"{value:.3f}" for value in relative[: len(model.curve)]]
        shown += [""] * (len(model.curve) - len(shown))
        rows = [[row[0], true, *row[1:]] for row, true in zip(curve.rows, shown, strict=True)]
        curve = Table(curve.caption, [curve.header[0], "truth", *curve.header[1:]], rows)
        error = [["relative error", f"{model.curve.error(truth):.1%} on average below position 1"]]
        facts = Table(facts.caption, facts.header, [*facts.rows, *error])
    tables = [curve, *([_contexts(model, by)] if by and model.contexts else []), facts]
    lines = [_stated(model), *([_same(model, by)] if by and not model.contexts else []), *weak_sources(model)]
    lines += _repair(model)
    return "\n".join(lines) + "\n\n" + as_text(tables)


def position_facts(model: LogModel, *, by: str | None = None, truth: Float64 | None = None) -> dict[str, Any]:
    """Return the same as values for JSON; the arguments are those of `position_text`."""
    return {
        **_common(model),
        "truth": None if truth is None else truth / truth[0],
        "error": None if truth is None else model.curve.error(truth),
        "by": by,
        "contexts": model.contexts,
        "references": model.references,
        "unsupported": model.unsupported,
        "linkage": model.linkage,
        "fit": {name: getattr(model.fit_quality, name) for name in ("fits", "largest", "p_value")},
        "feedback": model.feedback,
        "parts": asdict(model.form),
        "strength": model.strength,
        "tests": {name: model.tests[name] for name in ("position", "context") if name in model.tests},
    }


def trust_text(model: LogModel) -> str:
    """Return trust bias as text: whether there is any, its size, and alpha and beta at each position."""
    found, used, given = model.parameters, model.form.trust, model.curve.name == "given"
    rows = [
        [
            str(at + 1),
            f"{found.alpha[at]:.3f}",
            "" if given else _ends(found.alpha_lower, found.alpha_upper, at),
            f"{found.beta[at]:.3f}",
            _ends(found.beta_lower, found.beta_upper, at) if used else "",
        ]
        for at in range(len(found))
    ]
    caption = f"P(click at position k) = alpha P(click at position 1) + beta; {found.confidence:.0%} intervals"
    table = Table(caption, ["position", "alpha", "interval", "beta", "interval"], rows)
    return "\n".join([_trust(model), *weak_sources(model), *_repair(model)]) + "\n\n" + as_text([table])


def trust_facts(model: LogModel) -> dict[str, Any]:
    """Return the same as values for JSON."""
    tests = {"trust": model.tests["trust"]} if "trust" in model.tests else {}
    return {**_common(model), "parameters": model.parameters.plain(), "tests": tests}


def differing(contexts: dict[str, Curve]) -> tuple[str, str, int] | None:
    """Return the two contexts whose curves differ most beyond their intervals, higher first, and the position."""
    worst, gap = None, 1.0
    for at in range(1, max(map(len, contexts.values()), default=0)):
        high = max(contexts, key=lambda name: contexts[name].lower[at])
        low = min(contexts, key=lambda name: contexts[name].upper[at])
        ratio = float(contexts[high].lower[at] / max(contexts[low].upper[at], 1e-300))
        if ratio > gap:
            worst, gap = (high, low, at + 1), ratio
    return worst


def _common(model: LogModel) -> dict[str, Any]:
    return {
        **{name: getattr(model.size, name) for name in ("sessions", "queries", "pairs", "impressions", "clicks")},
        "curve": model.curve,
    }


def _stated(model: LogModel) -> str:
    """Return whether there is position bias, and how much."""
    if model.curve.name == "given":
        return "The curve is the one you gave (--propensities). Position bias was not estimated."
    test = model.tests["position"]
    stated, often = STATED[test.verdict].format(bias="position bias"), "as often as position 1 on average"
    if test.verdict != "inconclusive":
        size = f"{test.estimate:.0%} {often} ({_interval(test, model, percent=True)})"
        return f"{stated} Lower positions are observed {size}.{_note(test)}"
    stated += f" Reason: {test.note}." if test.note else ""
    if not np.isfinite(test.lower) or "not identified" in model.linkage.identified:
        return stated
    size = f"{test.lower:.0%} to {test.upper:.0%} {often} ({model.curve.confidence:.0%} interval)"
    return f"{stated} Lower positions may be observed {size}."


def _trust(model: LogModel) -> str:
    test = model.tests.get("trust")
    if test is None:
        if model.form.steepness:
            return "Trust bias was not tested: queries differ in how steep the curve is, which looks like trust."
        return "Trust bias was not tested."
    estimate = ""
    if np.isfinite(test.estimate):
        ends = f" ({_interval(test, model)})" if np.isfinite(test.lower) else ""
        estimate = f" Trust adds {max(test.estimate, 0.0):.3f} to the click probability at position 1{ends}."
    used = "" if model.form.trust else " Every beta is 0."
    if test.verdict == "present" and not model.form.trust:
        used = " The position curve is not corrected for it, so every beta is 0."
    return f"{STATED[test.verdict].format(bias='trust bias')}{estimate}{used}{_note(test)}"


def weak_sources(model: LogModel) -> list[str]:
    """Return what a reader must know about the positions that neither documents nor randomisation link."""
    linkage, lines = model.linkage, []
    if model.curve.name == "given" or linkage.linked:
        return []
    at = {}
    for kind in linkage.identified:
        text = spans([each == kind for each in linkage.identified])
        at[kind] = f"position {text}" if text.isdigit() else f"positions {text}"
    if "features" in at:
        rises = " It rises above 100%, which makes this doubtful." if model.tests["position"].lower > 1 else ""
        lines.append(
            f"Identified by features only: {at['features']}. There the curve relies on the assumption that"
            f" documents with similar features are equally relevant.{rises}"
        )
    if "not identified" in at:
        lines.append(
            f"Not identified: {at['not identified']}. There the curve is a smooth continuation, not an estimate."
        )
    return lines


def _repair(model: LogModel) -> list[str]:
    repair = "" if model.curve.name == "given" else model.linkage.repair
    return [f"To repair this, {repair[0].lower()}{repair[1:]}."] if repair else []


def _contexts(model: LogModel, by: str | None) -> Table:
    curves = model.contexts
    rows = [
        [
            str(at + 1),
            *(
                f"{curve.values[at]:.3f}" + (f" ({_ends(curve.lower, curve.upper, at)})" if at else "")
                for curve in curves.values()
            ),
        ]
        for at in range(len(model.curve))
    ]
    return Table(f"Observation by position and {by}", ["position", *curves], rows)


def _same(model: LogModel, by: str | None) -> str:
    if len(model.size.contexts) < 2:
        return f"All sessions have the same value of {by}."
    return f"The curve does not depend on {by}: one curve for all predicts held-out clicks at least as well."


def _interval(test: Test, model: LogModel, *, percent: bool = False) -> str:
    lower, upper = (f"{each:.0%}" if percent else f"{each:.3f}" for each in (test.lower, test.upper))
    return f"{model.curve.confidence:.0%} interval {lower} to {upper}"


def _note(test: Test) -> str:
    return f" {test.note[0].upper()}{test.note[1:]}." if test.note else ""


def _ends(lower: Float64, upper: Float64, at: int) -> str:
    return "" if at == 0 or np.isnan(lower[at]) else f"{lower[at]:.3f} to {upper[at]:.3f}"
