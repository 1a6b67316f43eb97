"""`clickprism bias`: estimate how users observe results, by position, trust, display times and click models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from clickprism.cli.output import FLAT, Output, command_line
from clickprism.evaluation.clicks import ClickModelSettings
from clickprism.log.settings import EngineSettings
from clickprism.observation.bootstrap import Bootstrap
from clickprism.observation.contexts import CurveSettings
from clickprism.observation.estimate_parameters import TrustSettings
from clickprism.observation.examination_settings import ExaminationSettings


def position(
    log: Path,
    /,
    *,
    out: Path | None = None,
    on_error: Literal["raise", "quarantine"] = "raise",
    settings: Annotated[CurveSettings, FLAT],
    bootstrap: Annotated[Bootstrap, FLAT],
    output: Annotated[Output, FLAT],
) -> None:
    """Estimate how often each position is observed.

    The result is observation relative to position 1, by every estimator that the log supports, with intervals, and
    the reason why the log does not support the others.

    ```bash
    clickprism bias position mylog
    clickprism bias position sessions.tsv --by device --out runs/curves
    clickprism bias position clicks.npz --method allpairs --method pbm --resamples 500
    ```

    Args:
        log: Ingested log, session file (TSV or CSV with the columns query, documents, clicks), or simulated clicks.
        out: Folder for curves.json and the plots (SVG and PNG).
        on_error: Stop at the first broken line of a session file (raise), or skip broken lines (quarantine).
    """
    from clickprism._util.files import make_folder, write_file
    from clickprism._util.tables import to_json
    from clickprism.errors import UnsupportedError
    from clickprism.observation.contexts import observe
    from clickprism.observation.inputs import read_input

    if out is not None:
        make_folder(out)
    sessions = read_input(log, on_error=on_error, note=output.note)
    with output.progress("curves") as progress:
        observed = observe(sessions, settings, bootstrap=bootstrap, progress=progress)
    output.result(observed)
    if out is not None:
        from clickprism.evaluation.plots import write_curves

        write_file(out / "curves.json", to_json(observed) + "\n")
        output.note(f"Written to {out}: curves.json, {', '.join(write_curves(observed, out))}")
    whole = observed.whole
    if not whole.curves:
        raise UnsupportedError("the log supports none of these estimators", remedy="The table gives the reasons")
    if observed.differ is not None:
        high, low, place = observed.differ
        output.note(
            f"The curves for {settings.by} = {high} and {settings.by} = {low} differ by more than their intervals, "
            f"most at position {place}: train a separate ranker for each, or use a method without one curve for all"
        )
    if whole.best is None:
        output.note("Only the click rate is available. It is biased by relevance: it is not a position curve")
    else:
        values = ", ".join(f"{value:.4g}" for value in whole.curves[whole.best].values)
        setting = ["--methods.ipw.propensities", f"[{values}]"]
        if log.suffix == ".npz":
            output.next("train", log, "--method", "ipw", *setting, "--out", "runs/ipw")
        else:  # a session file has no features to train on, and a log may have none
            output.note(f"To train with the curve of {whole.best}: {setting[0]} '{setting[1]}'")


def trust(
    log: Path,
    /,
    *,
    out: Path | None = None,
    on_error: Literal["raise", "quarantine"] = "raise",
    settings: Annotated[TrustSettings, FLAT],
    bootstrap: Annotated[Bootstrap, FLAT],
    output: Annotated[Output, FLAT],
) -> None:
    """Estimate trust bias: clicks on observed but irrelevant results.

    The result is how the click probability at each position depends on that at position 1, as a slope (alpha) and an
    intercept (beta), with intervals. Without trust bias, every beta is 0 and alpha is the position curve.

    ```bash
    clickprism bias trust mylog --out trust.json
    clickprism bias trust mylog --method randomised --depth 5
    clickprism bias trust sessions.tsv --method harvest --method em --json
    ```

    Args:
        log: Ingested log, session file (TSV or CSV with the columns query, documents, clicks), or simulated clicks.
        out: JSON file for the preferred parameters; `clickprism relevance estimate` reads it.
        on_error: Stop at the first broken line of a session file (raise), or skip broken lines (quarantine).
    """
    from clickprism._util.files import check_output
    from clickprism.errors import UnsupportedError
    from clickprism.observation.estimate_parameters import estimate_all
    from clickprism.observation.inputs import place_input

    if out is not None:
        check_output(out, suffix=".json")
    placed = place_input(log, on_error=on_error, note=output.note)
    estimated = estimate_all(placed, settings, bootstrap=bootstrap)
    output.result(estimated)
    if estimated.best is None:
        raise UnsupportedError("the log supports none of these estimators", remedy="The table gives the reasons")
    best = estimated.parameters[estimated.best]
    for note in best.notes:
        output.note(f"note: {note}")
    if out is None:
        output.next("bias", "trust", log, "--out", "trust.json")
        return
    best.write(out)
    output.note(f"Written: {out}, the parameters of {best.source}")
    if log.is_dir():
        output.next("relevance", "estimate", log, "--parameters", out, "--out", "estimates.parquet")


def examination(
    log: Path,
    /,
    *,
    days: str | None = None,
    truth: Path | None = None,
    out: Path | None = None,
    settings: Annotated[ExaminationSettings, FLAT],
    engine: Annotated[EngineSettings, FLAT],
    output: Annotated[Output, FLAT],
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
        out: HTML file for a report; the plots are written beside it as PNG.
    """
    from clickprism._util.files import check_output
    from clickprism.log.schedule import day_span
    from clickprism.log.store import LogStore
    from clickprism.observation.examination import fit_current

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
        from clickprism.evaluation.examination_plots import write_examination_report

        files = write_examination_report(found, log, out, next_command=command_line("log", "features", log))
        output.note(f"Written: {', '.join(map(str, files))}")
    output.next("log", "features", log)


def click_models(
    log: Path,
    /,
    *,
    on_error: Literal["raise", "quarantine"] = "raise",
    settings: Annotated[ClickModelSettings, FLAT],
    output: Annotated[Output, FLAT],
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
    from clickprism.observation.inputs import read_input

    sessions = read_input(log, on_error=on_error, note=output.note)
    with output.progress("click models") as progress:
        output.result(compare_click_models(sessions.clicks, settings, progress=progress))
