"""`clickprism evaluate`: measure rankers on judged lists, or estimate their value from clicks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from clickprism.cli.output import FLAT, Output
from clickprism.evaluation.counterfactual_settings import CounterfactualSettings
from clickprism.log.logged import ReadSettings


def counterfactual(
    log: Path,
    /,
    *models: Path,
    scores: tuple[Path, ...] = (),
    settings: Annotated[CounterfactualSettings, FLAT],
    reading: Annotated[ReadSettings, FLAT],
    output: Annotated[Output, FLAT],
) -> None:
    """Estimate from a click log how many clicks a ranker would get.

    No judgments are needed. Each estimate has an interval and is compared with the clicks on the lists as logged. The
    command refuses, with exit code 3, if the log never showed what the ranker would show.

    ```bash
    clickprism evaluate counterfactual mylog runs/mylog/bundle
    clickprism evaluate counterfactual mylog --scores scores.csv --depth 5 --measure dcg
    ```

    Args:
        log: An ingested log (a folder), a session file (TSV, CSV), or a simulated log (.npz).
        models: Folders of runs, models or bundles.
        scores: File with the columns query, document and score (.csv, .tsv, .jsonl or .parquet); may be repeated.
    """
    from clickprism.errors import SettingError, UnsupportedError
    from clickprism.evaluation.counterfactual import counterfactual
    from clickprism.evaluation.counterfactual_result import CounterfactualResults
    from clickprism.experiments.logs import open_log

    if not models and not scores:
        raise SettingError("models", None, "name at least one model, or give --scores FILE")
    opened = open_log(log, settings=reading, note=output.note)
    clicks = opened.logged.clicks
    output.note(f"{clicks.sessions:,} searches, {int(clicks.clicks.sum()):,} clicks")
    scored = {str(path): opened.scores(path) for path in models}
    scored |= {str(path): opened.scores_in(path, note=output.note) for path in scores}
    found = {name: counterfactual(opened.logged, each, settings=settings) for name, each in scored.items()}
    output.result(CounterfactualResults(str(log), settings.unit, settings.confidence, found))
    if not any(each.best for each in found.values()):
        raise UnsupportedError("the log supports no estimate for any ranker", remedy="The reasons are listed above")
