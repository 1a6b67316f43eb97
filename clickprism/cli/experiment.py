"""`clickprism demo`, `train` and `experiment`: train rankers on clicks, and compare methods on simulated users."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

from cyclopts import Parameter

from clickprism.cli.output import Flat, Output, command_line, program
from clickprism.debias import METHODS
from clickprism.errors import DataError, SettingError
from clickprism.experiments.settings import ExperimentSettings, FeedbackSettings, read_settings
from clickprism.simulation.raw_settings import DemoSettings

S = TypeVar("S", bound=ExperimentSettings)
METHOD = (
    f"Name of the method ({', '.join(METHODS)}), or a label under --methods. "
    "By default dla, or the method of --config if it names exactly one."
)


def demo(*, out: Path = Path("runs/demo"), settings: Flat[DemoSettings], output: Flat[Output]) -> None:
    """See everything work on a simulated raw log, in one or two minutes.

    Users of a simulated search engine have position bias, look longer at some documents than at others, and prefer
    popular ones. The demo ingests their raw log, finds these biases, trains rankers on the clicks by the methods of
    several papers and by `auto`, and compares them with the truth. It writes a report, and a ranker that can be served.

    ```bash
    clickprism demo
    clickprism demo --seed 7 --out runs/demo7
    ```

    Args:
        out: Folder for the report, the log, the rankers and a bundle.
    """
    from clickprism.experiments.demo import run_demo

    with output.status() as status:
        result = run_demo(settings, out=out, program=program(), say=status)
    output.show(result.text(), result)


def train(
    log: Path | None = None,
    /,
    *,
    out: Path,
    method: Annotated[str | None, Parameter(help=METHOD)] = None,
    held_out: Path | None = None,
    resume: bool = False,
    settings: Flat[ExperimentSettings],
    output: Flat[Output],
) -> None:
    """Train one ranker on clicks.

    Without a log, users are simulated on judged lists. If training is interrupted, the best model so far is saved.

    ```bash
    clickprism train mylog --method dla --out runs/dla
    clickprism train clicks.npz --method ipw --methods.ipw.floor 0.05 --ranker linear --out runs/ipw
    clickprism train --user ubm --method dla --ranker.hidden "[64, 32]" --fit.epochs 20 --out runs/dla
    ```

    Args:
        log: An ingested log (a folder), a frame with one row per shown document (CSV, TSV, JSON lines or Parquet), or a
            simulated log (.npz).
        out: Folder for the model, the metrics, the settings and the checkpoint.
        held_out: Simulated log on the validation part, for `--evaluation.validation clicks`.
        resume: Continue from the checkpoint in the folder, with the settings saved there.
    """
    from clickprism.experiments.train import CHECKPOINT, SETTINGS, train_ranker

    default = ExperimentSettings()
    if output.config is None:
        _check_one_run(settings)
    if log is not None and output.config is None:
        simulated = [(name, getattr(settings, name), getattr(default, name)) for name in ("user", "sessions")]
        simulated += [
            (f"simulation.{name}", value, getattr(default.simulation, name))
            for name, value in vars(settings.simulation).items()
            if name != "merge"  # the sessions of a log are merged too
        ]
        for name, value, usual in simulated:
            if value != usual:
                raise SettingError(name, value, "not be given with a log, which has its own clicks")
    if resume and not any((out / file).is_file() for file in (SETTINGS, CHECKPOINT)):
        raise DataError("there is nothing to resume", file=out, remedy="Name the folder of an earlier run")
    if resume and output.config is None and (out / SETTINGS).exists():
        if settings != default:
            raise SettingError("config", None, f"be {out / SETTINGS}, if a run is resumed with other settings")
        settings = read_settings(out / SETTINGS)
    label = method or (next(iter(settings.methods)) if len(settings.methods) == 1 else "dla")
    trained = train_ranker(
        settings, method=label, out=out, source=log, held_out=held_out, resume=resume, show=output.show_progress
    )
    output.result(trained)
    if trained.stopped == "interrupted":
        words = [*([] if log is None else [log]), *([] if held_out is None else ["--held-out", held_out])]
        again = command_line("train", *words, "--resume", "--out", out)
        output.note(f"The best model so far is saved. To continue: {again}")
        raise KeyboardInterrupt
    output.next("evaluate", "judged", out)


def simulate(
    *, out: Path, held_out: Path | None = None, settings: Flat[ExperimentSettings], output: Flat[Output]
) -> None:
    """Simulate users who click on judged lists.

    The file contains the clicks, what the users observed, and which data they clicked on, so that other commands can
    read it without further settings. `clickprism log simulate` writes the raw log of a whole search engine instead.

    ```bash
    clickprism experiment simulate --out clicks.npz
    clickprism experiment simulate --user trust --sessions 50 --simulation.length 20 --out clicks.npz
    ```

    Args:
        out: File to write (.npz).
        held_out: File for clicks on the validation part, which can choose the epoch without labels.
    """
    from clickprism.experiments.data import simulate_file

    if output.config is None:
        _check_one_run(settings)
    output.result(simulate_file(settings, out, held_out=held_out))
    output.next("train", out, "--method", "dla", "--out", "runs/dla")


def compare(
    *,
    method: tuple[str, ...] = (),
    baseline: str | None = None,
    jobs: int = 1,
    out: Path | None = None,
    settings: Flat[ExperimentSettings],
    output: Flat[Output],
) -> None:
    """Compare methods over several seeds.

    Every method is trained on the clicks of simulated users in every run, and measured on the test part.

    ```bash
    clickprism experiment compare --method labels --method click --method dla --ranker linear --runs 3
    clickprism experiment compare --user ubm --runs 2 --jobs 2 --out runs/ubm
    ```

    Args:
        method: Name of a method, or a label under --methods; may be repeated. By default all of --methods.
        baseline: Method to compare with. By default click, or else the first.
        jobs: Number of processes; 0 means one per core.
        out: Folder for the models, the table as text, Markdown, LaTeX and HTML, the figures and report.html.
    """
    from clickprism.experiments.compare import compare_methods
    from clickprism.experiments.results import write_results

    settings = chosen(settings, method)
    with output.progress("runs") as progress:
        results = compare_methods(settings, baseline=baseline, out=out, jobs=jobs, progress=progress)
    output.result(results)
    if out is not None:
        title = f"{', '.join(settings.methods)}: {settings.user['name']} users, {settings.ranker['name']} ranker"
        again = command_line("experiment", "compare", "--config", out / "settings.toml", "--user", "ubm")
        output.note(f"Report: {write_results(results, out, title=title, next_commands=[again])}")


def feedback(
    *,
    method: tuple[str, ...] = (),
    jobs: int = 1,
    out: Path | None = None,
    settings: Flat[FeedbackSettings],
    output: Flat[Output],
) -> None:
    """Simulate a ranker that is retrained on its own clicks.

    In each round users click on what the ranker shows, and the ranker is trained on these clicks. The result is how
    popularity bias changes over the rounds, for each method.

    ```bash
    clickprism experiment feedback --method click --method dla --runs 3 --out runs/feedback
    clickprism experiment feedback --user popularity --rounds 4 --exploration 0.1
    ```

    Args:
        method: Name of a method, or a label under --methods; may be repeated. By default all of --methods.
        jobs: Number of processes; 0 means one per core.
        out: Folder for results.json, the figures and report.html.
    """
    from clickprism.experiments.feedback import feedback_loop, write_feedback

    settings = chosen(settings, method)
    with output.progress("runs") as progress:
        results = feedback_loop(settings, jobs=jobs, progress=progress)
    output.result(results)
    if out is not None:
        again = command_line("experiment", "feedback", "--config", out / "settings.toml", "--user", "popularity")
        output.note(f"Report: {write_feedback(results, out, next_commands=[again])}")


def _check_one_run(settings: ExperimentSettings) -> None:
    """Refuse `--runs` for a command that has one run; a settings file may be that of a comparison."""
    if settings.runs != 1:
        raise SettingError("runs", settings.runs, "be 1 here; `clickprism experiment compare` has several runs")


def chosen(settings: S, methods: Iterable[str]) -> S:
    """Return the settings with only these methods; labels of the settings keep theirs."""
    labels = [label for each in methods for label in each.split(",")]
    return replace(settings, methods={label: settings.methods.get(label, {}) for label in labels} or settings.methods)
