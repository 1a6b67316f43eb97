"""What `auto` says: the verdict in three or four sentences, one figure, what to do next, and all details folded.

Everything is made from the results of the stages, so that a run that was interrupted writes the same pages.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from clickprism._util.files import write_file
from clickprism._util.tables import Table, to_json, to_plain
from clickprism.data.logged import Logged
from clickprism.diagnosis.finding import Diagnosis, Finding, Tone
from clickprism.diagnosis.report import finding_parts
from clickprism.evaluation.report import Part, Said, write_report
from clickprism.types import Float64

if TYPE_CHECKING:
    from clickprism.auto.checks import Checked
    from clickprism.auto.run import AutoResult
    from clickprism.evaluation.counterfactual.result import CounterfactualResult

Plain: TypeAlias = Mapping[str, Any]
Stages: TypeAlias = Mapping[str, Plain]

REPORT, JSON = "report.html", "auto.json"
WIDTH: Final = 110
MOST_STEPS: Final = 4  # on the terminal and above the folds
SIGNS: Final = {"passed": "✓ passed", "failed": "! failed", "inconclusive": "? inconclusive"}
TONES: Final[Mapping[str, Tone]] = {"passed": "good", "failed": "bad", "inconclusive": "inconclusive"}
CORRECTED, RAW_CLICKS = "corrected", "raw clicks"  # what the ranker was trained on
WITHOUT_FEATURES: Final = (
    "No ranker can be trained: the documents of the log have no features, and a ranker scores a document by them."
)
CONSTANT: Final = (
    "No ranker can be trained: all documents of the log have the same features, and a ranker scores a document by them."
)
WITHOUT_MODEL: Final = "No ranker can be trained: the model of the log could not be fitted"
INSTEAD: Final = (
    "Without features you can estimate the relevance of each query-document pair that was shown, and make a judgment "
    "list from the estimates: `clickprism relevance estimate`, then `clickprism relevance judgments`.",
    "To train a ranker, log the features of each document that is shown, and run `clickprism auto` again.",
)
MORE_DATA: Final = ("Log more searches with clicks, and run `clickprism auto` again.",)
BIASED: Final = "This ranker was trained on raw clicks: position bias remains in it."
ALWAYS: Final = (
    "Clicks show how attractive a document is at the first position. A bias that affects a document at every position "
    "alike, such as an attractive picture, cannot be separated from relevance."
)
CORRECTED_BY: Final = {"trust": "affine", "coupling": "lbd", "popularity": "inforank"}
NOT_CORRECTED: Final = (
    "The ranker is not corrected for it. `clickprism train LOG --method {method}` trains one that is: interleave the "
    "two to see which one users prefer."
)
NO_VALUE: Final[Plain] = {"sentence": "", "method": "", "refusal": "", "advice": "", "numbers": {}}
CLEARLY: Final = 0.01  # share of the expected clicks: a loss that the verdict mentions
BESIDE: Final = "Interleave the bundle with the current ranker"
ADVICE: Final = {
    "better": f"{BESIDE} in a part of the searches, and switch to it if users prefer it.",
    "worse": f"Do not serve the bundle to all users yet. {BESIDE} in a small part of the searches first.",
    "no difference found": f"{BESIDE} in a part of the searches: the log does not show which of the two is better.",
    "unknown": f"{BESIDE} in a small part of the searches: only users can show which of the two is better.",
}


def described(logged: Logged, name: str, outcome: str) -> dict[str, Any]:
    """Return what the log contains, in a sentence and in numbers, and what the ranker is trained for."""
    clicks = logged.clicks
    shown = np.unique(clicks.rows)
    counts: dict[str, Any] = {
        "sessions": clicks.sessions,
        "queries": len(np.unique(clicks.lists.list_of[shown])),
        "documents": len(shown),
        "candidates": clicks.lists.documents,
        "impressions": int(clicks.list_impressions.sum()),
        "clicks": int(clicks.clicks.sum()),
        "features": int(clicks.lists.features.shape[1]),
        "days": None if logged.days is None else len(np.unique(logged.days)),
        "rankers": None if logged.policy is None else len(np.unique(logged.policy)),
        "randomised": None if logged.randomised is None else int(clicks.list_impressions[logged.randomised].sum()),
        "account": dict(logged.account),
        "notes": list(logged.notes),
    }
    optional = {"days": logged.days, "rankers": logged.policy, "randomised positions": logged.randomised}
    missing = [what for what, values in optional.items() if values is None]
    width = counts["features"]
    sentence = (
        f"{name}: {counts['sessions']:,} searches for {counts['queries']:,} queries, {counts['impressions']:,} "
        f"impressions of {counts['documents']:,} documents "
        f"{f'with {width} feature' + 's' * (width > 1) if width else 'without features'}, {counts['clicks']:,} clicks."
    )
    sentence += f" Not in the log: {', '.join(missing)}." if missing else ""
    return {"sentence": sentence, "counts": counts, "outcome": outcome}


def refused(reason: str, *, estimable: bool = True) -> dict[str, Any]:
    """Return the result of the choice if no ranker can be trained; see `commands`."""
    nothing: dict[str, Any] = {"chosen": None, "use": "", "reason": "", "checks": [], "candidates": [], "curve": None}
    instead = INSTEAD if estimable and reason in (WITHOUT_FEATURES, CONSTANT) else MORE_DATA
    return {**nothing, "refused": reason, "instead": list(instead)}


def chosen(checked: Checked, logged: Logged, scores: Float64) -> dict[str, Any]:
    """Return the chosen ranker as plain values: candidates, checks, scope, and means by position.

    Args:
        checked: The candidates after the checks.
        logged: The log.
        scores: Scores of the documents by copies of the ranker that did not learn from their query, [documents].
    """
    from clickprism.auto.candidates import summary_of

    candidates, used = checked.candidates, checked.used
    means = by_position(checked, logged, scores)
    logged_order, re_ranked = (
        float(np.nansum(checked.model.curve.values * means[name])) for name in ("relevance", "relevance_reranked")
    )
    rows = []
    for each in (*candidates.found.values(), candidates.raw):
        behind = each.likelihood - used.likelihood
        error = float(behind.std() * np.sqrt(len(behind)))
        summary = summary_of(each.name)
        rows.append({"name": each.name, "summary": summary, "gain": float(behind.sum()), "error": error})
    return {
        "chosen": used.name,
        "use": checked.use,
        "reason": candidates.reason,
        "summary": summary_of(candidates.chosen),
        "refused": "",
        "instead": [],
        "checks": to_plain(checked.checks),
        "selection": checked.selection,
        "scope": {"rerank_depth": checked.rerank_depth, "reason": checked.scope},
        "candidates": rows,
        "normaliser": checked.normaliser.kind,
        "engine": {
            "weight": candidates.weight,
            "error": candidates.weight_error,
            "explained": candidates.imitation.explained,
        },
        "curve": to_plain(checked.model.curve),
        "position": to_plain(checked.model.tests["position"]),
        "by_position": to_plain(means),
        "expected_change": re_ranked / max(logged_order, 1e-9) - 1,
    }


def by_position(checked: Checked, logged: Logged, scores: Float64) -> dict[str, Float64]:
    """Return click rate and mean estimated relevance at each position, as logged and if each list is re-ranked."""
    clicks, model = logged.clicks, checked.model
    depth = len(model.curve)
    owner = np.repeat(np.arange(len(clicks)), np.diff(clicks.offsets))
    weight, at, relevance = clicks.list_impressions.astype(np.float64), clicks.positions - 1, model.cold()
    slots = np.lexsort((clicks.positions, owner))
    ranked = np.lexsort((clicks.positions, -scores[clicks.rows], owner))  # the best document takes the first slot
    after = np.empty(len(at), dtype=np.float64)
    after[slots] = relevance[clicks.rows[ranked]]
    top = at < depth

    def mean(values: Float64) -> Float64:
        shown = np.bincount(at[top], weights=weight[top], minlength=depth)
        total = np.bincount(at[top], weights=values[top], minlength=depth)
        return np.asarray(np.divide(total, shown, out=np.full(depth, np.nan), where=shown > 0))

    rates = clicks.clicks.astype(np.float64), weight * relevance[clicks.rows], weight * after
    names = "click_rate", "relevance", "relevance_reranked"
    return {name: mean(values) for name, values in zip(names, rates, strict=True)}


def valued(result: CounterfactualResult | None, problem: str = "") -> dict[str, Any]:
    """Return the estimated clicks of the ranker in a sentence and in numbers, or why there is no estimate."""
    numbers = {} if result is None else to_plain(result)
    if result is None or result.best is None:
        if result is not None:
            problem = (result.estimates.get("item-position") or next(iter(result.estimates.values()))).refusal
        reason = f"The log does not show how many clicks the ranker would get: {problem}."
        return {**NO_VALUE, "refusal": reason, "advice": ADVICE["unknown"], "numbers": numbers}
    best, logged, gain = result.estimates[result.best], result.logged.value, result.estimates[result.best].difference
    change, lower, upper = (f"{each / max(logged, 1e-9):+.1%}" for each in (gain.value, gain.lower, gain.upper))
    sentence = (
        f"On the searches of the log, the ranker would get {best.value.value:.3f} clicks per search, where the log has "
        f"{logged:.3f}: {change} (95% interval {lower} to {upper}). Each query was ranked by a copy of the "
        "ranker that did not learn from it."
    )
    method = f"Estimator: {best.name}, which assumes: {best.assumption}."
    return {**NO_VALUE, "sentence": sentence, "method": method, "advice": ADVICE[best.verdict], "numbers": numbers}


def graded(result: Plain | None) -> dict[str, Any]:
    """Return the evaluation on the user's grades in a sentence and in numbers."""
    if result is None:
        return {"sentence": "", "numbers": {}}
    values = ", ".join(
        f"{name} {'unknown' if each is None else f'{each:.3f}'}" for name, each in result["values"].items()
    )
    sentence = f"nDCG@10 on the grades of {result['documents']:,} documents of {result['queries']:,} queries: {values}."
    return {"sentence": f"{sentence} Nothing was trained on the grades.", "numbers": result}


def verdict(stages: Stages, diagnosis: Diagnosis) -> list[str]:
    """Return sentences on the correction, its certainty, the scope and an expected loss; or why there is no ranker."""
    choice = stages["choice"]
    if choice["refused"]:
        return [choice["refused"], *([diagnosis.findings["position"].sentence] if diagnosis.curve is not None else [])]
    change = choice.get("expected_change", 0.0)
    worse = (
        f"By its estimates of relevance, the model of the log expects {-change:.0%} fewer clicks in the order of the "
        "ranker than in that of the engine, which knows more than the features."
    )
    outcome = stages["read"]["outcome"]
    trained_for = (
        f"It ranks by {outcome}, not by clicks alone: the relevance of a document is its click probability times the "
        "estimated value of a click on it. The checks and the estimated clicks of this report count clicks."
    )
    return [
        _corrected(choice),
        *([trained_for] if outcome != "click" else []),
        _sure(choice),
        choice["scope"]["reason"],
        *([worse] if change <= -CLEARLY else []),
    ]


def _corrected(choice: Plain) -> str:
    if choice["use"] == RAW_CLICKS:
        return (
            "The ranker was trained on raw clicks, because no correction for position bias passed the checks. "
            "Position bias remains in it."
        )
    curve, test = choice["curve"], choice["position"]
    if len(curve["values"]) < 2:
        return (
            f"The ranker is {choice['summary']}. The log has one position only: there is no position bias to correct."
        )
    corrected = f"The ranker, {choice['summary']}, was trained on clicks corrected for position bias"
    if curve["name"] == "given":
        return (
            f"{corrected} with the flattest curve within its interval: lower positions count as observed "
            f"{test['estimate']:.0%} as often as position 1 on average."
        )
    if test["verdict"] == "inconclusive":
        ends = f"lower positions may be observed {test['lower']:.0%} to {test['upper']:.0%} as often as position 1"
        return f"{corrected}. How large that bias is, is uncertain: {test['note'] or ends}."
    return (
        f"{corrected}: lower positions are observed {test['estimate']:.0%} as often as position 1 on average (95% "
        f"interval {test['lower']:.0%} to {test['upper']:.0%})."
    )


def _sure(choice: Plain) -> str:
    checks = choice["checks"]
    passed = sum(check["verdict"] == "passed" for check in checks)
    if passed == len(checks):
        several = f"All {passed} checks" if passed > 1 else "The check"
        return f"{several} of the correction passed." if passed else "No check was possible."
    rest = [f"{check['name']} ({check['verdict']})" for check in checks if check["verdict"] != "passed"]
    return f"{passed} of {len(checks)} checks passed; not passed: {', '.join(rest)}."


def unknown(stages: Stages, diagnosis: Diagnosis) -> list[str]:
    """Return what the log cannot show, one sentence each."""
    findings = [each.sentence for each in diagnosis.findings.values() if each.verdict == "inconclusive"]
    return [*findings, *([stages["value"]["refusal"]] if stages["value"]["refusal"] else []), ALWAYS]


def next_steps(stages: Stages, diagnosis: Diagnosis) -> list[str]:
    """Return what to do next, the most useful first: try the ranker, then the advice of open findings."""
    choice, order = stages["choice"], sorted(diagnosis.findings.values(), key=lambda each: each.tone == "inconclusive")
    found: dict[str, str] = {}
    for each in order:
        advice = "" if each.tone == "good" else each.advice
        if choice["use"] == CORRECTED:
            # a model that conditions on clicks above ranks documents worse (`LogModel`)
            if each.name in ("position", "interaction") or each.details.get("used"):
                continue
            if each.verdict == "present" and each.name in CORRECTED_BY:
                advice = NOT_CORRECTED.format(method=CORRECTED_BY[each.name])
        if advice:
            found.setdefault(advice, f"{each.title}: {advice}")
    return [*(choice["instead"] if choice["refused"] else [stages["value"]["advice"]]), *found.values()]


def commands(
    out: Path,
    log: str | None,
    *,
    bundle: bool,
    options: Sequence[str] = (),
    estimable: bool = True,
    program: str = "clickprism",
) -> list[str]:
    """Return commands to run next.

    Args:
        out: Folder of the run.
        log: The log as it was named on the command line.
        bundle: Whether there is a ranker.
        options: Options that say how the log is read, such as --map.
        estimable: Whether relevance can be estimated: some results of the log were clicked, and others were not.
        program: What to type to run clickprism.
    """
    folder = shlex.quote(str(out))
    if bundle:
        return [f"{program} serve {folder}/bundle", f"{program} model verify {folder}/bundle"]
    if log is None or not estimable:
        return []
    name = shlex.join([log, *options])
    if log.endswith(".npz"):
        return [f"{program} bias position {name}"]
    return [
        f"{program} relevance estimate {name} --out estimates.parquet",
        f"{program} relevance judgments estimates.parquet --out judgments.csv",
    ]


def terminal(stages: Stages, verdict: Sequence[str], steps: Sequence[str], lines: Sequence[str]) -> str:
    """Return what `clickprism auto` prints at the end, in one screen."""
    value, hidden = stages["value"], len(steps) - MOST_STEPS
    todo = [_wrapped("  - ", each.replace("`", "")) for each in steps[:MOST_STEPS]]
    todo += [f"  - {hidden} more in the report"] if hidden > 0 else []
    parts = {
        "Verdict": [_wrapped("  ", each.replace("`", "")) for each in verdict],
        "Checks": [_wrapped(f"  {SIGNS[each['verdict']]}: ", each["sentence"]) for each in stages["choice"]["checks"]],
        "Estimated clicks": [_wrapped("  ", value["sentence"] or value["refusal"])],
        "How the log was read": [_wrapped("  - ", each) for each in stages["read"]["counts"]["notes"]],
        "Your grades": [_wrapped("  ", stages["grades"]["sentence"])],
        "What to do next": [*todo, *(f"    {line}" for line in lines)],
    }
    return "\n\n".join("\n".join([heading, *rows]) for heading, rows in parts.items() if any(rows))


def _wrapped(head: str, text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=head, subsequent_indent="    ", break_on_hyphens=False)


def as_plain(result: AutoResult, name: str) -> dict[str, Any]:
    """Return auto.json: every decision with its reason and numbers."""
    bundle = result.stages["bundle"]
    return {
        "format": "clickprism auto",
        "version": 3,
        "log": {"name": name, "sentence": result.stages["read"]["sentence"], **result.stages["read"]["counts"]},
        "chosen": result.chosen,
        "verdict": list(result.verdict),
        "found": result.diagnosis.to_json()["findings"],
        "choice": result.stages["choice"],
        "value": result.stages["value"],
        "grades": result.stages["grades"]["numbers"] or None,
        "unknown": list(result.unknown),
        "next": list(result.steps),
        "bundle": {"folder": "bundle", "version": bundle["version"]} if bundle["version"] else None,
        "report": REPORT,
        "seconds": dict(result.seconds),
    }


def write_pages(result: AutoResult, figures: Mapping[str, str], name: str) -> dict[str, Any]:
    """Write report.html and auto.json.

    Args:
        result: The result of the run.
        figures: SVG figure of each finding, by name.
        name: Name of the log.
    """
    from clickprism.evaluation.plots import relevance_by_position, svg

    write_file(result.out / JSON, to_json(as_plain(result, name)) + "\n")
    choice, value, read = (result.stages[stage] for stage in ("choice", "value", "read"))
    steps = [Said("good", str(number), each) for number, each in enumerate(result.steps, start=1)]
    picture = (
        {}
        if choice["refused"]
        else {CAPTION: svg(relevance_by_position(choice["curve"], **choice["by_position"]), title=CAPTION)}
    )
    folded: dict[str, Sequence[Part]] = {}
    if read["counts"]["notes"]:
        folded["How the log was read"] = read["counts"]["notes"]
    if choice["candidates"]:
        folded["Candidates"] = [f"{choice['reason']}", _candidates(choice), choice["selection"]]
        folded["Checks"] = [_check(each) for each in choice["checks"]]
        folded["Estimated clicks"] = [text for text in (value["sentence"] or value["refusal"], value["method"]) if text]
    if result.stages["grades"]["sentence"]:
        folded["Your grades"] = [result.stages["grades"]["sentence"]]
    findings = result.diagnosis.findings
    folded["Findings"] = [part for key, each in findings.items() for part in _details(each, figures.get(key))]
    folded["What this log cannot show"] = [Said("inconclusive", "?", each) for each in result.unknown]
    if len(steps) > MOST_STEPS:
        folded["Further steps"] = steps[MOST_STEPS:]
    write_report(
        result.report,
        title=f"A ranker from {name}" if result.chosen else f"What {name} shows",
        summary="\n\n".join(result.verdict),
        comparison=[],
        figures=picture,
        settings={"log": read["sentence"], "seconds": {stage: f"{each:.1f}" for stage, each in result.seconds.items()}},
        more={"What to do next": steps[:MOST_STEPS]},
        next_commands=commands(result.out, None, bundle=result.bundle is not None),
        folded=folded,
    )
    return {"files": [REPORT, JSON]}


CAPTION: Final = "Click rate, observation and relevance by position, before and after re-ranking"


def _candidates(choice: Plain) -> Table:
    rows = []
    for each in choice["candidates"]:
        gain, error, what = each["gain"], each["error"], each["summary"].capitalize()
        if each["name"] == choice["chosen"]:
            rows.append([f"{each['name']} (used)", "reference", f"{what}."])
            continue
        word = "about as well as" if abs(gain) <= error else "better than" if gain > 0 else "worse than"
        difference = f"{gain:+,.1f} ± {error:,.1f}"
        rows.append([each["name"], difference, f"{what}. It predicts held-out clicks {word} the one used."])
    return Table("", ["candidate", "held-out log-likelihood", "what it is"], rows)


def _check(check: Plain) -> Said:
    numbers = {name: number for name, number in check["numbers"].items() if number is not None}
    facts = (f"{name} {number:{',.0f' if abs(number) >= 1000 else '.3g'}}" for name, number in numbers.items())
    word = f"{check['name'].capitalize()}: {SIGNS[check['verdict']]}"
    return Said(TONES[check["verdict"]], word, check["sentence"], ", ".join(facts))


def _details(finding: Finding, picture: str | None) -> list[Part]:
    head, *rest = finding_parts(finding, figure=picture)
    return [head._replace(word=f"{finding.title}: {finding.word}") if isinstance(head, Said) else head, *rest]
