"""`clickprism bias`: estimate how users observe results, by position, trust, display times and click models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from clickprism.cli.output import FLAT, Output
from clickprism.observation.bootstrap import Bootstrap
from clickprism.observation.contexts import CurveSettings
from clickprism.observation.estimate_parameters import TrustSettings


def position(
    log: Path,
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
    from clickprism._util.files import make_folder
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

        (out / "curves.json").write_text(to_json(observed) + "\n", encoding="utf-8")
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
        output.note(f"To train with the curve of {whole.best}: --methods.ipw.propensities '[{values}]'")


def trust(
    log: Path,
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
