"""`clickprism evaluate --log`: what rankers would earn, from a log alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clickprism.cli_old.observe import settings_named
from clickprism.cli_old.output import Output, columns
from clickprism.errors import DataError, SettingError

if TYPE_CHECKING:
    from clickprism.evaluation.counterfactual_result import CounterfactualResult, Estimate
    from clickprism.experiments import ExperimentSettings


@dataclass(frozen=True)
class Asked:
    """What to value, on which log, by what: models and bundles, files of scores, estimators, measures."""

    log: Path
    models: tuple[Path, ...]
    scores: tuple[Path, ...]
    estimators: tuple[str, ...]
    measures: tuple[str, ...]


def value(
    asked: Asked,
    how: dict[str, Any],
    *,
    depth: int,
    memory: str,
    settings: ExperimentSettings | None,
    output: Output,
) -> None:
    """Read the log, score its documents by every ranker, print what each would earn."""
    from clickprism.evaluation.counterfactual import counterfactual
    from clickprism.evaluation.counterfactual_settings import NAMES, CounterfactualSettings
    from clickprism.experiments.valued import open_log
    from clickprism.settings import resolve

    if not asked.models and not asked.scores:
        raise SettingError("MODEL", None, "be given, one or more, or --scores FILE")
    if len(asked.measures) > 1:
        raise SettingError("--measure", list(asked.measures), "be one with --log: clicks or dcg")
    for name in set(asked.estimators) - set(NAMES):
        resolve(dict.fromkeys(NAMES, ""), name, path="--estimator")
    with settings_named():
        made = CounterfactualSettings(**how)
    log = open_log(asked.log, settings=settings, memory=memory, note=output.note)
    clicks = log.logged.clicks
    output.note(f"{clicks.sessions:,} searches, {int(clicks.clicks.sum()):,} clicks")
    rankers = {str(path): log.scores(path) for path in asked.models}
    rankers |= {str(path): log.scores_in(path, note=output.note) for path in asked.scores}
    measure: Any = asked.measures[0] if asked.measures else "clicks"
    estimators: Any = asked.estimators or NAMES
    results = {}
    for name, scores in rankers.items():
        with settings_named():
            results[name] = counterfactual(
                log.logged, scores, depth=depth, measure=measure, estimators=estimators, settings=made
            )
    facts = {
        "log": str(asked.log),
        "unit": made.unit,
        "rankers": {name: each.to_json() for name, each in results.items()},
    }
    output.result("\n\n".join(_words(name, each, made.confidence) for name, each in results.items()), facts)
    if not any(each.best for each in results.values()):
        raise DataError("the log can value none of the rankers", remedy="The reasons stand above")


def _words(name: str, result: CounterfactualResult, confidence: float) -> str:
    """A ranker in words: what the log earned, a line an estimator, and why others are refused."""
    what = "clicks" if result.measure == "clicks" else "DCG of clicks"
    given = [each for each in result.estimates.values() if not each.refusal]
    lines = [
        f"{name}: {what} a search at positions 1 to {result.depth}, {confidence:.0%} intervals",
        f"as logged: {result.logged}",
    ]
    if given:
        header = ["estimator", what, "gain over the log", "verdict", "in effect", "not shown", "clipped"]
        lines += ["", columns(header, [_row(each) for each in given]), ""]
        lines += [f"{each.name} assumes: {each.assumption}" for each in given]
    refused = [each for each in result.estimates.values() if each.refusal]
    if refused:
        lines += ["", *(f"{each.name} is refused: {each.refusal}" for each in refused)]
    return "\n".join(lines)


def _row(estimate: Estimate) -> list[str]:
    return [
        estimate.name,
        str(estimate.value),
        str(estimate.difference),
        estimate.verdict,
        f"{estimate.effective:,.0f}",
        f"{estimate.missing:.1%}",
        f"{estimate.clipped:.1%}",
    ]
