"""`clickprism evaluate`: measure rankers on judged lists, or estimate their value from clicks."""

from __future__ import annotations

from pathlib import Path

from clickprism.cli.output import Flat, LogSource, Output
from clickprism.data.click_table import TableSettings
from clickprism.errors import SettingError, UnsupportedError
from clickprism.evaluation.ab import BucketSettings, compare_buckets
from clickprism.evaluation.counterfactual.result import CounterfactualSettings
from clickprism.evaluation.interleaving import InterleavingSettings, compare_interleaved
from clickprism.experiments.compare import JudgedSettings
from clickprism.log.open_log import ReadSettings
from clickprism.log.store import LogStore


def judged(*models: Path, attention: Path | None = None, settings: Flat[JudgedSettings], output: Flat[Output]) -> None:
    """Measure one or several models on judged lists.

    Several models are compared with the first. The lists are those that the models were trained for, unless options
    name others.

    ```bash
    clickprism evaluate judged runs/click runs/dla
    clickprism evaluate judged runs/dla --measure nDCG@10 --measure MRR --part validation
    ```

    Args:
        models: Folders of runs or models.
        attention: Picture to write for one attention ranker: which features attend to which (.png, .svg or .pdf).
    """
    from clickprism.experiments.compare import draw_attention, evaluate_judged

    if not models:
        raise SettingError("models", None, "name at least one model")
    if attention is not None:
        if len(models) > 1:
            raise SettingError("attention", str(attention), "be given with one model: it draws one picture")
        draw_attention(models[0], attention, settings=settings)
        output.note(f"Attention: {attention}")
    output.result(evaluate_judged(models, settings=settings))


def counterfactual(
    log: LogSource,
    /,
    *models: Path,
    scores: tuple[Path, ...] = (),
    settings: Flat[CounterfactualSettings],
    reading: Flat[ReadSettings],
    table: Flat[TableSettings],
    output: Flat[Output],
) -> None:
    """Estimate from a click log how many clicks a ranker would get.

    No judgments are needed. Each estimate has an interval and is compared with the clicks on the lists as logged. What
    was not shown is predicted by the model of the log, whose position curve is the same in every command. An estimate
    that the log does not support is refused, with the reason; the exit code is 3 if all are.

    ```bash
    clickprism evaluate counterfactual mylog runs/mylog/bundle
    clickprism evaluate counterfactual mylog --scores scores.csv --depth 5 --measure dcg
    ```

    Args:
        models: Folders of runs, models or bundles.
        scores: File with the columns query, document and score (.csv, .tsv, .jsonl or .parquet); may be repeated.
    """
    from clickprism.evaluation.counterfactual.result import CounterfactualResults
    from clickprism.evaluation.counterfactual.run import counterfactual
    from clickprism.experiments.scorable_log import open_log
    from clickprism.log_model.model import LogModel

    if not models and not scores:
        raise SettingError("models", None, "name at least one model, or give --scores FILE")
    opened = open_log(log, settings=reading, table=table, note=output.note)
    clicks = opened.logged.clicks
    output.note(f"{clicks.sessions:,} searches, {int(clicks.clicks.sum()):,} clicks")
    scored = {str(path): opened.scores(path) for path in models}
    scored |= {str(path): opened.scores_in(path, note=output.note) for path in scores}
    with output.status() as status:
        model = LogModel.fit(opened.logged, progress=status)
    found = {name: counterfactual(opened.logged, each, settings=settings, model=model) for name, each in scored.items()}
    output.result(CounterfactualResults(log, settings.unit, settings.confidence, found))
    if not any(each.best for each in found.values()):
        raise UnsupportedError("the log supports no estimate for any ranker", remedy="The reasons are listed above")


def interleaving(log: Path, /, *, settings: Flat[InterleavingSettings], output: Flat[Output]) -> None:
    """Compare two rankers by the clicks on their interleaved lists.

    Each search shows one list with documents of both rankers, such as `serve --interleave` returns. The ranker whose
    documents get more clicks wins the search. The exit code is 3 if the log has no such searches.

    ```bash
    clickprism evaluate interleaving mylog
    clickprism evaluate interleaving mylog --rankers old new --days 2026-03-01..2026-03-14
    clickprism evaluate interleaving mylog --unit user --json
    ```

    Args:
        log: Click log whose impressions name their ranker.
    """
    output.result(compare_interleaved(LogStore.open(log, note=output.note), settings))


def buckets(log: Path, /, *, settings: Flat[BucketSettings], output: Flat[Output]) -> None:
    """Compare rankers by the clicks on searches that show one of them (A/B test).

    The bucket of a search is the field `ranker` of its impressions, the same for all its documents. Users are counted
    as independent, searches of one user are not. The exit code is 3 if the log has no two buckets.

    ```bash
    clickprism evaluate buckets mylog
    clickprism evaluate buckets mylog --control old --days 2026-03-01..2026-03-14
    ```

    Args:
        log: Click log whose impressions name their ranker.
    """
    output.result(compare_buckets(LogStore.open(log, note=output.note), settings))
