"""`clickprism estimate`: the relevance of each (query, document) of a click log, with its uncertainty."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clickprism._util.files import check_output
from clickprism.cli_old.options import OUTPUT, SETTINGS, EngineName, Examination, Json, Log, Memory, Quiet
from clickprism.cli_old.output import Output, columns, command_line

if TYPE_CHECKING:
    from clickprism.log.partials import Examiner
    from clickprism.log.store import LogStore
    from clickprism.observation.parameters import ClickParameters
    from clickprism.relevance.estimates import Estimator
    from clickprism.relevance.of_log import LogEstimates

EPILOG = (
    "Examples:\n\nclickprism estimate logs/shop --out estimates.parquet\n\n"
    "clickprism estimate logs/shop --parameters parameters.json --imputation imputed.parquet --out e.parquet\n\n"
    "clickprism estimate logs/shop --estimator affine --set sums.weighting=mean --since 2026-03-01 --out e.parquet"
)

LEARNED = {
    "k": "k: impressions in the first slot that the prior is worth",
    "shift": "shift: prior = sigmoid(shift + slope logit(imputation))",
    "slope": "slope",
}


def command(
    log: Log,
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE.parquet", help="A row a pair: estimate, interval, evidence.", rich_help_panel=OUTPUT
        ),
    ],
    parameters: Annotated[
        Path | None,
        typer.Option(
            "--parameters",
            metavar="FILE.json",
            help="How clicks follow from those in the first slot (clickprism parameters); by default estimated now.",
        ),
    ] = None,
    imputation: Annotated[
        Path | None,
        typer.Option(
            "--imputation",
            metavar="FILE.parquet",
            help="A relevance for each pair that needs no clicks (clickprism impute); pairs never shown get theirs.",
        ),
    ] = None,
    estimator: Annotated[
        str,
        typer.Option("--estimator", metavar="NAME", help="shrunk, affine, ipw, doubly_robust or imputation."),
    ] = "shrunk",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the estimator, such as sums.confidence=0.9, or for shrunk k=5 (an imputation is worth "
            "5 impressions); may be repeated.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="DAY", help="From this day on (UTC).")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="DAY", help="To this day, with it.")] = None,
    depth: Annotated[
        int,
        typer.Option(
            "--depth",
            metavar="N",
            min=1,
            help="Positions further down do not count, nor those below the parameters.",
            rich_help_panel=SETTINGS,
        ),
    ] = 10,
    k: Annotated[
        int | None,
        typer.Option(
            "--k",
            metavar="N",
            min=0,
            help="The clicks on pairs that fewer users saw do not speak (5, for privacy); 0 lets all speak. "
            "The k of shrunk is another: --set k=5.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    examination: Examination = None,
    engine: EngineName = "duckdb",
    memory: Memory = "2GB",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Estimate the relevance of each (query, document): the click that it would get in the first slot."""
    from clickprism.errors import SettingError
    from clickprism.log.store import LogStore
    from clickprism.observation.examination import chosen_model
    from clickprism.relevance.estimators import ESTIMATORS
    from clickprism.relevance.of_log import estimate_log
    from clickprism.settings import choose, override

    output = Output(json, quiet)
    check_output(out, suffix=".parquet")
    chosen = choose(ESTIMATORS, override({"name": estimator}, settings or ()), path="--estimator")
    if estimator in ("doubly_robust", "imputation") and imputation is None:
        raise SettingError("--estimator", estimator, "be given an --imputation, which it needs")
    store = LogStore.open(log, note=output.note)
    days = _days(store, since, until)
    with store.write(engine=engine, memory=memory) as writer:
        running = writer.engine
        examiner = chosen_model(store.folder / "models", examination)
        known = _parameters(store, running, parameters, depth, output, days=days)
        made = estimate_log(
            store,
            running,
            out,
            estimator=chosen,
            parameters=known,
            imputation=imputation,
            days=days,
            k=k,
            examiner=examiner,
        )
    if estimator == "doubly_robust" and _sees_own_click(examiner):
        output.note(
            "warning: the examination model sees whether a document was clicked, which biases doubly_robust: "
            f"{command_line('examine', log, '--clicks', 'others')}"
        )
    _say(made, known, output, estimator=estimator, out=out)


def _parameters(
    store: LogStore, engine: Any, path: Path | None, depth: int, output: Output, *, days: list[Any] | None
) -> ClickParameters:
    """Those of the file; else those that the same days of the log give."""
    from clickprism.observation.parameters import ClickParameters

    if path is not None:
        return ClickParameters.read(path).cut(depth)
    from clickprism.log.sessions import update_sessions
    from clickprism.observation.estimate_parameters import deepest_parameters
    from clickprism.observation.placed import place

    update_sessions(store, engine, days)
    found = deepest_parameters(place(store, days).cut(depth))
    output.note(
        f"Parameters estimated from the log by {found.source}; keep them by: clickprism parameters {store.folder}"
    )
    for note in found.notes:
        output.note(f"note: {note}")
    return found


def _sees_own_click(examiner: Examiner | None) -> bool:
    from clickprism.observation.examination import ExaminationModel

    return isinstance(examiner, ExaminationModel) and examiner.settings.clicks == "all"


def _days(store: LogStore, since: str | None, until: str | None) -> list[Any] | None:
    from datetime import date

    from clickprism.errors import DataError, SettingError

    ends = []
    for name, text in (("--since", since), ("--until", until)):
        try:
            ends.append(None if text is None else date.fromisoformat(text))
        except ValueError:
            raise SettingError(name, text, "be a day such as 2026-03-04") from None
    if ends == [None, None]:
        return None
    known = store.table("events").days()
    days = [day for day in known if (ends[0] is None or day >= ends[0]) and (ends[1] is None or day <= ends[1])]
    if not days:
        span = f"{known[0]} to {known[-1]}" if known else "no day"
        raise DataError(f"has no events then; it has {span}", file=store.folder, remedy="Give other days")
    return days


def _say(made: LogEstimates, parameters: ClickParameters, output: Output, *, estimator: str, out: Path) -> None:
    learned = _learned(made.learned)
    data = {
        "pairs": made.pairs,
        "imputed_only": made.imputed_only,
        "suppressed": made.suppressed,
        "below_depth": made.below,
        "without_imputation": made.without_imputation,
        "estimator": estimator,
        "learned": learned,
        "parameters": parameters.plain(),
        "out": str(out),
    }
    rows = [
        ["pairs", f"{made.pairs:,}"],
        ["no impression that counts: the prior alone", f"{made.imputed_only:,}"],
        ["left out: too few users", f"{made.suppressed:,}"],
        [f"impressions below position {len(parameters)}, not counted", f"{made.below:,}"],
    ]
    if made.without_imputation:
        rows.append(["without an imputation: its mean", f"{made.without_imputation:,}"])
    rows += [[LEARNED[name], f"{value:.4g}"] for name, value in learned.items()]
    output.result(columns([f"by {estimator}", ""], rows), data)
    output.note(f"Written: {out}")
    output.note(f"Next: {command_line('judgments', out, '--out', 'judgments.csv')}")


def _learned(estimator: Estimator) -> dict[str, float]:
    """The numbers that the estimator has learned, or was given."""
    from clickprism.settings import plain

    values = {name: value for name, value in plain(estimator).items() if name in LEARNED}
    return {name: float(value) for name, value in values.items() if value is not None}
