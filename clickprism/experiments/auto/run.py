"""`auto`: from a log to a ranker that can be served, with a reason for every decision and no label anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, final

from clickprism.data.logged import Logged
from clickprism.diagnosis.finding import Diagnosis
from clickprism.experiments.auto import parts, words
from clickprism.experiments.auto.findings import diagnosis_of
from clickprism.experiments.auto.folder import AutoFolder, Stage, fingerprint_of
from clickprism.experiments.auto.report import write_pages
from clickprism.experiments.auto.settings import AutoSettings

Progress: TypeAlias = Callable[[str, str], None]
Source: TypeAlias = Logged | Path | str | Callable[[], Logged]
BUNDLE: Final = "bundle"
CHOICE: Final = "choice"
LAST: Final = 0.1  # share of the budget for what comes after the choice
LEAST: Final = 0.3  # share of the budget that the choice has in any case
DEFAULT: Final = AutoSettings()


@final
@dataclass(frozen=True, eq=False)
class AutoResult:
    """What `auto` came to.

    Attributes:
        out: its folder.
        diagnosis: what was found in the log.
        chosen: the candidate that was trained; None where no ranker can be.
        decisions: every one, with its reason and numbers.
        unknown: what the log cannot tell, a sentence each.
        steps: what to do next, a sentence each.
        bundle: the folder to serve; None without a ranker.
        report: the page.
        stages: the result of each stage, as its file has it.
        seconds: what each stage took, when it was done.
    """

    out: Path
    diagnosis: Diagnosis
    chosen: str | None
    decisions: tuple[words.Decision, ...]
    unknown: tuple[str, ...]
    steps: tuple[str, ...]
    bundle: Path | None
    report: Path
    stages: Mapping[str, Mapping[str, Any]]
    seconds: Mapping[str, float]

    def __repr__(self) -> str:
        return f"AutoResult({self.chosen or 'no ranker'}, report {str(self.report)!r})"

    def text(self, *, log: str | None = None, program: str = "clickprism") -> str:
        """The end of `clickprism auto`: what was found, chosen, could not be known, and what to do next."""
        lines = words.commands(self.out, log, bundle=self.bundle is not None, program=program)
        return words.terminal(self.diagnosis, self.decisions, self.unknown, self.steps, lines)


def auto(
    log: Source,
    *,
    out: Path | str = "runs/auto",
    settings: AutoSettings = DEFAULT,
    name: str = "",
    progress: Progress | None = None,
) -> AutoResult:
    """Diagnose a log, choose a method without labels, train, value, bundle and report.

    Each stage's result is a file in `out`. What was done is not done again: a call that was interrupted goes on, and
    comes to the same. The folder has report.html, auto.json and, where a ranker could be trained, bundle/.

    Args:
        log: a folder of `clickprism log ingest`, a file of sessions or of `clickprism experiment simulate`, a `Logged`,
            or a function that reads one.
        out: the folder; one of another log or of other settings is refused.
        settings: budget, seed and processes.
        name: of the log, for people; by default that of the file.
        progress: called with a stage and what is going on.

    Returns:
        What was found, chosen and why. A log without features has no ranker: `bundle` is None, and `decisions` says
        what can be done instead.
    """
    say: Progress = progress or (lambda _stage, _text: None)
    name = name or (Path(log).name if isinstance(log, Path | str) else "the log")
    say("read", f"reading {name}")
    begun = time.perf_counter()
    logged = parts.read(log)
    spent = time.perf_counter() - begun
    identity = {"budget": settings.budget.total_seconds(), "seed": settings.seed}
    with AutoFolder.opened(Path(out), log=fingerprint_of(logged), settings=identity) as folder:
        return _staged(folder, logged, settings, name=name, spent=spent, say=say)


def _staged(
    folder: AutoFolder, logged: Logged, settings: AutoSettings, *, name: str, spent: float, say: Progress
) -> AutoResult:
    """Every stage in order; `spent` are the seconds that reading took."""
    done: dict[str, Stage] = {}

    def stage(which: str, doing: str, make: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        if doing:
            say(which, "was done before" if folder.done(which) else doing)
        done[which] = folder.stage(which, make, spent=spent if which == "read" else 0.0)
        return done[which].result

    def within(what: str) -> Callable[[str], None]:
        return lambda text: say(what, text)

    stage("read", "counting what it holds", lambda: parts.described(logged, name))
    found = stage(
        "diagnosis",
        "looking for biases",
        lambda: parts.diagnosed(logged, seed=settings.seed, as_of=folder.started, say=within("diagnosis")),
    )
    diagnosis = diagnosis_of(found)
    seconds = choice_seconds(settings.budget.total_seconds(), spent=done["read"].seconds + done["diagnosis"].seconds)
    place = folder.path / CHOICE
    choice = stage(
        "choice",
        f"training candidates, {seconds:.0f} s at most" if logged.has_features else "there is nothing to train on",
        lambda: parts.chosen(logged, settings, seconds=seconds, out=place, say=within("choice")),
    )
    ranked = choice["chosen"] is not None
    asking = "asking the log what it would earn" if ranked else ""
    value = stage("value", asking, lambda: parts.valued(logged, choice, place))
    made = stage(
        "bundle",
        "making the bundle" if ranked else "",
        lambda: parts.bundled(
            logged, choice, value, diagnosis, source=place, out=folder.path / BUNDLE, made=folder.started
        ),
    )
    results = {which: kept.result for which, kept in done.items()}
    result = AutoResult(
        folder.path,
        diagnosis,
        choice["chosen"],
        tuple(words.decisions(results, diagnosis)),
        tuple(words.could_not_know(results, diagnosis)),
        tuple(words.next_steps(results, diagnosis)),
        folder.path / BUNDLE if made["version"] else None,
        folder.path / "report.html",
        results,
        {which: kept.seconds for which, kept in done.items()},
    )
    stage("report", "writing the report", lambda: write_pages(result, found["figures"], name))
    return result


def choice_seconds(budget: float, *, spent: float) -> float:
    """What the choice may take of the budget, in whole seconds: what is left but for the last stages.

    >>> choice_seconds(600, spent=40), choice_seconds(60, spent=58)
    (500.0, 18.0)
    """
    return float(max(round(budget * (1 - LAST) - spent), round(budget * LEAST), 1))
