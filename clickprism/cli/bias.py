"""`clickprism bias`: estimate how users observe results, by position, trust, display times and click models."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from clickprism._util.files import check_output, make_folder, write_file
from clickprism._util.tables import to_json
from clickprism.cli.output import Flat, LogSource, Output, command_line
from clickprism.data.click_table import TableSettings
from clickprism.data.logged import Logged
from clickprism.data.sessions import read_session_file
from clickprism.errors import SettingError, UnsupportedError
from clickprism.evaluation.clicks import ClickModelSettings
from clickprism.examination.settings import ExaminationSettings
from clickprism.experiments.scorable_log import open_log
from clickprism.log.features.schedule import day_span
from clickprism.log.open_log import ColumnSettings, ReadSettings, contexts, where
from clickprism.log.settings import EngineSettings
from clickprism.log.store import LogStore
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.types import Float64

SKIPPED: Final = ("clicks outside the list", "lines quarantined")


def position(
    log: LogSource,
    /,
    *,
    propensities: Path | None = None,
    out: Path | None = None,
    columns: Flat[ColumnSettings],
    settings: Flat[LogModelSettings],
    reading: Flat[ReadSettings],
    table: Flat[TableSettings],
    output: Flat[Output],
) -> None:
    """Estimate how often each position is observed.

    The result is the position curve: observation relative to position 1, with intervals. It also shows curves
    that need no model, whether they agree, and how each position is identified.

    ```bash
    clickprism bias position mylog
    clickprism bias position sessions.tsv --by device --out runs/curves
    clickprism bias position clicks.npz --depth 3 --resamples 500
    ```

    Args:
        propensities: File with the observation of each position, if you know it: one number a line, a JSON list, or
            curves.json of `--out`. It replaces the estimate.
        out: Folder for curves.json, a plot (SVG and PNG) and the fitted model (model).
    """
    from clickprism.diagnosis.position import differing, position_facts, position_text

    if out is not None:
        make_folder(out)
    model, positions = _fitted(log, columns, settings, (reading, table), output, propensities=propensities)
    truth = _truth(log)
    facts = position_facts(model, by=columns.by, truth=truth)
    output.show(position_text(model, by=columns.by, truth=truth), facts)
    if out is not None:
        from clickprism.evaluation.plots import write_curves

        write_file(out / "curves.json", to_json(facts) + "\n")
        names = write_curves(model, out, truth=truth)
        model.save(out / "model")
        output.note(f"Written to {out}: curves.json, {', '.join(names)}, model")
    differ = differing(model.contexts)
    if differ is not None:
        high, low, place = differ
        output.note(
            f"The curves for {columns.by} = {high} and {columns.by} = {low} differ by more than their intervals, most "
            f"at position {place}: train a separate ranker for each"
        )
    _suggest_training(log, model, positions, output)


def _suggest_training(log: str, model: LogModel, positions: int, output: Output) -> None:
    """Say how to train with the curve, or why not to; `positions` is the number of positions in the log."""
    if len(model.curve) < positions:
        output.note(f"To train with the curve, estimate it for all {positions} positions of the log: omit --depth")
        return
    if model.curve.name != "given" and "not identified" in model.linkage.identified:
        output.note("Do not train with this curve: some of its positions are not identified")
        return
    values = ", ".join(f"{value:.4g}" for value in model.curve.values)
    setting = ["--methods.ipw.propensities", f"[{values}]"]
    if log.endswith(".npz"):
        output.next("train", log, "--method", "ipw", *setting, "--out", "runs/ipw")
    else:  # a session file has no features to train on, and a log may have none
        output.note(f"To train with this curve: {setting[0]} '{setting[1]}'")


def trust(
    log: LogSource,
    /,
    *,
    out: Path | None = None,
    columns: Flat[ColumnSettings],
    settings: Flat[LogModelSettings],
    reading: Flat[ReadSettings],
    table: Flat[TableSettings],
    output: Flat[Output],
) -> None:
    """Estimate trust bias: clicks on results because the engine ranks them high.

    The result is whether the log contains trust bias, and how the click probability at each position depends on that
    at position 1, as a slope (alpha) and an intercept (beta), with intervals. Alpha is the position curve. Every beta
    is 0 unless the model of the log includes trust.

    ```bash
    clickprism bias trust mylog --out trust.json
    clickprism bias trust sessions.tsv --where device=phone --depth 4 --json
    ```

    Args:
        out: JSON file for the parameters; `clickprism relevance estimate` reads it.
    """
    from clickprism.diagnosis.position import trust_facts, trust_text

    if out is not None:
        check_output(out, suffix=".json")
    model, _ = _fitted(log, columns, settings, (reading, table), output)
    output.show(trust_text(model), trust_facts(model))
    for note in model.parameters.notes:
        output.note(f"note: {note}")
    if out is None:
        output.next("bias", "trust", log, "--out", "trust.json")
        return
    model.parameters.write(out)
    output.note(f"Written: {out}")
    if Path(log).is_dir():
        given = ["--estimator", "affine", "--parameters", out]
        output.next("relevance", "estimate", log, *given, "--out", "estimates.parquet")


def _fitted(
    log: LogSource,
    columns: ColumnSettings,
    settings: LogModelSettings,
    reading: tuple[ReadSettings, TableSettings],
    output: Output,
    *,
    propensities: Path | None = None,
) -> tuple[LogModel, int]:
    """Read a log and fit its model; return it with the number of positions in the log.

    A log without clicks or with one position only is refused.
    """
    from clickprism.log_model.model import LogModel
    from clickprism.log_model.results import read_propensities

    if settings.depth is not None and settings.depth < 2:
        raise SettingError("depth", settings.depth, "be at least 2, because a curve compares positions")
    given = None if propensities is None else read_propensities(propensities)
    with output.status() as status:
        status("reading the log")
        logged = where(_opened(log, columns, *reading, output), columns)
        clicks = logged.clicks
        skipped = "".join(f"; {name}: {count:,}" for name, count in logged.account.items() if name in SKIPPED)
        output.note(f"{clicks.sessions:,} sessions, {int(clicks.clicks.sum()):,} clicks{skipped}")
        if not clicks.clicks.any():
            raise UnsupportedError("has no clicks", file=log, remedy="Use a log with clicks")
        if clicks.max_position < 2:
            raise UnsupportedError(
                "has results at one position only",
                file=log,
                remedy="A curve compares positions: use a log of lists with at least two results",
            )
        if not clicks.clicks[clicks.positions <= (settings.depth or clicks.max_position)].any():
            problem = f"has no clicks at positions 1 to {settings.depth}"
            raise UnsupportedError(problem, file=log, remedy="Use a larger --depth")
        context = contexts(logged, columns)
        model = LogModel.fit(logged, settings=settings, context=context, propensities=given, progress=status)
    return model, clicks.max_position


def _opened(log: str, columns: ColumnSettings, reading: ReadSettings, table: TableSettings, output: Output) -> Logged:
    """Read a log of any kind, with the columns that were asked for."""
    return open_log(log, settings=reading, table=table, columns=columns.columns, note=output.note).logged


def _truth(log: str) -> Float64 | None:
    """Return the true observation at each position if the log is a simulation that recorded it."""
    if not log.endswith(".npz"):
        return None
    from clickprism.data.clicks import load_bare
    from clickprism.types import Simulation

    clicks, truth = load_bare(Path(log))
    return None if truth is None else Simulation(clicks, truth).observation


def examination(
    log: Path,
    /,
    *,
    days: str | None = None,
    truth: Path | None = None,
    out: Path | None = None,
    settings: Flat[ExaminationSettings],
    engine: Flat[EngineSettings],
    output: Flat[Output],
) -> None:
    """Fit a model of which documents were examined, from display times.

    The model becomes the current one of the log: click features and estimates use it. The result is how good its
    estimates are on held-out searches. Settings that are not given are those of the log.

    ```bash
    clickprism bias examination mylog
    clickprism bias examination mylog --days 2024-01-01..2024-01-02 --positive-ms 3000 --out runs/examination.html
    clickprism bias examination mylog --clicks others
    ```

    Args:
        log: Ingested log.
        days: First and last day to learn from, such as 2026-01-01..2026-01-28, or one day; by default all (UTC).
        truth: Folder with the true observations of a simulated log, to compare with.
        out: HTML file for a report; the plots are written to the same folder as PNG.
    """
    from clickprism.examination.examine import fit_current

    span = day_span(days)
    if out is not None:
        check_output(out, suffix=".html")
    store = LogStore.open(log, note=output.note)
    settings = store.settings.beneath("examination", settings)
    with store.write(engine=engine.engine, memory=engine.memory, exclusive=False) as writer:
        found = fit_current(store, writer.engine, settings=settings, days=span, truth=truth)
    output.result(found)
    output.note(f"Current model: {found.file}")
    if found.warning is not None:
        output.note(found.warning)
    if out is not None:
        from clickprism.evaluation.bias_plots import write_examination_report

        files = write_examination_report(found, log, out, next_command=command_line("log", "features", log))
        output.note(f"Written: {', '.join(map(str, files))}")
    output.next("log", "features", log)


def click_models(
    log: Path,
    /,
    *,
    on_error: Literal["raise", "quarantine"] = "raise",
    settings: Flat[ClickModelSettings],
    output: Flat[Output],
) -> None:
    """Fit click models to a log and compare them on held-out sessions.

    The result is the log-likelihood and the perplexity of each model on sessions that it was not fitted to, best model
    first, and the observation curve of each model that has one.

    ```bash
    clickprism bias click-models sessions.tsv
    clickprism bias click-models mylog --model pbm --model ubm --held-out 0.5
    ```

    Args:
        log: Ingested log, session file (TSV or CSV with the columns query, documents, clicks), or simulated clicks.
        on_error: Stop at the first broken line of a session file (raise), or skip broken lines (quarantine).
    """
    from clickprism.evaluation.clicks import compare_click_models

    sessions = _read_sessions(log, on_error, output)
    with output.progress("click models") as progress:
        output.result(compare_click_models(sessions.clicks, settings, progress=progress))


def _read_sessions(log: Path, on_error: Literal["raise", "quarantine"], output: Output) -> Logged:
    """Return the sessions of a log, one ranked list each; those of an ingested log are updated first."""
    if not (log / "log.toml").is_file():
        sessions = read_session_file(log, on_error=on_error)
    else:
        from clickprism.log.load import read_store

        sessions = read_store(log, merge=False, note=output.note)
    broken, outside = (sessions.account.get(name, 0) for name in ("lines quarantined", "clicks outside the list"))
    skipped = f"; skipped {broken:,} broken lines" if broken else ""
    ignored = f"; ignored {outside:,} clicks on documents outside the list" if outside else ""
    clicks = sessions.clicks
    output.note(f"{clicks.sessions:,} sessions, {int(clicks.clicks.sum()):,} clicks{ignored}{skipped}")
    return sessions
