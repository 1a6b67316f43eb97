"""`clickprism approximate`: the estimate of clicks and imputation together, fast enough to rank by; fitted, applied."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clickprism._util.files import check_output
from clickprism.cli_old.options import OUTPUT, SETTINGS, EngineName, Examination, Json, Log, Memory, Quiet
from clickprism.cli_old.output import Output, columns, command_line

if TYPE_CHECKING:
    from clickprism.relevance.approximate import ApproximateSettings
    from clickprism.relevance.approximate_log import AppliedApproximation, LogApproximation

EPILOG = (
    "Examples:\n\nclickprism approximate logs/shop --imputation imputed.parquet --out runs/approximation\n\n"
    "clickprism approximate logs/shop --imputation imputed.parquet --since 2026-03-01 --out runs/approximation\n\n"
    "clickprism approximate logs/shop --apply runs/approximation --imputation imputed.parquet --out estimates.parquet"
)


def command(
    log: Log,
    *,
    imputation: Annotated[
        Path,
        typer.Option(
            "--imputation",
            metavar="FILE.parquet",
            help="A relevance for each pair that needs no clicks (clickprism impute --apply).",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="PATH",
            help="The folder for the approximation; with --apply, the file.parquet for its estimates.",
            rich_help_panel=OUTPUT,
        ),
    ],
    apply: Annotated[
        Path | None,
        typer.Option("--apply", metavar="DIR", help="Do not learn: estimate all pairs by the approximation in there."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="T",
            help="Learn from randomised first slots from this time on (UTC), by click vectors as of then; by default "
            "the last half of the log, four weeks at most.",
        ),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of", metavar="T", help="With --apply: the time of the click vectors; by default the log's end."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the networks, such as form=likelihood or fit.epochs=50; may be repeated.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, metavar="N", help="Of everything random (0).", rich_help_panel=SETTINGS),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(
            "--k",
            metavar="N",
            min=0,
            help="Click vectors leave out pairs with fewer users in a window (5); 0 leaves nothing out.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    examination: Examination = None,
    engine: EngineName = "duckdb",
    memory: Memory = "2GB",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn to estimate relevance from click vectors and an imputation, by randomised first slots; or apply it."""
    from clickprism.errors import SettingError
    from clickprism.log.schedule import parse_time
    from clickprism.log.store import LogStore
    from clickprism.observation.examination import chosen_model
    from clickprism.relevance.approximate import Approximation
    from clickprism.relevance.approximate_log import apply_log, fit_log

    output = Output(json, quiet)
    store = LogStore.open(log, note=output.note)
    if apply is None and as_of is not None:
        raise SettingError("--as-of", as_of, "be given with --apply only; to learn, give --since")
    given: tuple[tuple[str, Any], ...] = (("--since", since), ("--set", settings), ("--seed", seed))
    for name, value in given:
        if apply is not None and value is not None:
            raise SettingError(name, value, "not be given with --apply, which learns nothing")
    if apply is not None:
        check_output(out, suffix=".parquet")
    chosen = None if apply is not None else _settings(settings, seed)
    loaded = None if apply is None else Approximation.load(apply)
    window_settings = store.settings.windows if k is None else replace(store.settings.windows, k=k)
    with store.write(engine=engine, memory=memory) as writer:
        running = writer.engine
        same: dict[str, Any] = {"imputation": imputation, "window_settings": window_settings}
        same["examiner"] = chosen_model(store.folder / "models", examination)
        if loaded is not None:
            time = None if as_of is None else parse_time(as_of)
            applied = apply_log(store, running, loaded, out, as_of=time, **same)
        else:
            start = None if since is None else parse_time(since)
            made = fit_log(store, running, settings=chosen, since=start, **same)
    if loaded is not None:
        _say_applied(applied, output, out=out)
        return
    made.approximation.save(out)
    _say_fitted(made, output, out=out)
    words = ["approximate", log, "--apply", out, "--imputation", imputation, *([] if k is None else ["--k", k])]
    output.note(f"Next: {command_line(*words, '--out', 'estimates.parquet')}")


def _settings(assignments: list[str] | None, seed: int | None) -> ApproximateSettings:
    from clickprism.relevance.approximate import ApproximateSettings
    from clickprism.settings import build, override

    return build(ApproximateSettings, override({} if seed is None else {"seed": seed}, assignments or ()))


def _say_fitted(made: LogApproximation, output: Output, *, out: Path) -> None:
    losses = made.losses
    data = {
        "as_of": made.as_of.isoformat(),
        "until": made.until.isoformat(),
        "pairs": made.pairs,
        "impressions": made.impressions,
        "without_imputation": made.without_imputation,
        "imputation_is_worth": made.approximation.k,
        "held_out": losses.plain(),
        "approximation": str(out),
    }
    rows = []
    for name, loss in losses.values.items():
        gain = losses.gains.get(name)
        rows.append([name, f"{loss:.5f}", "" if gain is None else f"{gain[0]:+.5f} ({gain[1]:+.5f} to {gain[2]:+.5f})"])
    text = (
        f"Randomised first slots from {made.as_of} to {made.until} UTC, by click vectors as of {made.as_of}: "
        f"{made.pairs:,} pairs, {made.impressions:,} impressions\n"
        f"An imputation counts as much as {made.approximation.k:.3g} impressions of a pair\n\n"
        f"On {losses.queries:,} queries that were not learned from ({losses.impressions:,} impressions):\n"
        f"{columns(['', 'loss', 'the approximation is better by'], rows)}"
    )
    output.result(text, data)
    if made.without_imputation:
        output.note(f"{made.without_imputation:,} pairs without an imputation took its mean")
    worse = [name for name, gain in losses.gains.items() if gain[0] <= 0]
    unsure = [name for name, gain in losses.gains.items() if gain[1] <= 0 < gain[0]]
    if worse:
        output.note(f"warning: it is no better than the {' and the '.join(worse)} alone: do not rank by it yet")
    elif unsure:
        output.note(f"note: chance may have made it better than the {' and the '.join(unsure)}: more clicks would tell")
    output.note(f"Written: {out}")


def _say_applied(made: AppliedApproximation, output: Output, *, out: Path) -> None:
    data = {
        "as_of": made.as_of.isoformat(),
        "pairs": made.pairs,
        "imputed_only": made.imputed_only,
        "without_imputation": made.without_imputation,
        "out": str(out),
    }
    rows = [
        ["pairs", f"{made.pairs:,}"],
        ["never shown in the month, or to few users: as imputed", f"{made.imputed_only:,}"],
        ["without an imputation: its mean", f"{made.without_imputation:,}"],
    ]
    output.result(columns([f"as of {made.as_of} UTC", ""], rows), data)
    output.note(f"Written: {out}")
    output.note(f"Next: {command_line('rank', out, '--out', 'ranking.csv')}")
