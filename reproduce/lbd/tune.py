"""Table 3: lambda and t of LBD as printed, by Optuna; a study a ranker and coupling, in a file that can be resumed.

A trial is a cell of the grid, so that it shares its runs with the heat maps. The study goes by validation nDCG@10, as
in the paper; beside it stands what the likelihood of held-out clicks, which needs no labels, would have chosen.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from reproduce.common.files import done, finished, path_of, perform
from reproduce.common.pool import Clock, bar, say, side_by_side, span
from reproduce.lbd.plan import UNTUNED, Plan, Setting
from reproduce.lbd.runs import Run

PATIENCE = 4  # a study ends after so many times its number of different trials


@dataclass(frozen=True)
class Trial:
    """What one lambda and t came to, a mean over the seeds of tuning."""

    setting: Setting
    validation: float
    likelihood: float


@dataclass(frozen=True)
class Tuning:
    """The trials of a study, and what each criterion chooses among them."""

    ranker: str
    coupling: float
    trials: tuple[Trial, ...]

    @property
    def by_validation(self) -> Trial:
        """The best by labelled validation, with both lambda and t above 0 as in the paper's grids."""
        return max(self.of("both") or self.trials, key=lambda trial: trial.validation)

    @property
    def by_likelihood(self) -> Trial:
        """The best by held-out clicks."""
        return max(self.of("both") or self.trials, key=lambda trial: trial.likelihood)

    def of(self, kind: str) -> tuple[Trial, ...]:
        """The trials of LBD ("both"), of LBD-Lips ("penalty", t = 0) or of LBD-Ber ("drop", lambda = 0)."""
        signs = {"both": (True, True), "penalty": (True, False), "drop": (False, True)}[kind]
        return tuple(trial for trial in self.trials if (trial.setting[0] > 0, trial.setting[1] > 0) == signs)


def clock_of(plan: Plan, out: Path) -> Clock:
    """How long runs take, from all of the plan's that are done: what is foreseen of parts adds up."""
    runs = [*plan.runs(), *(run for study in plan.tuning for run in _cells(plan, study, plan.grid(study[0])))]
    return Clock(runs, out)


def left_to_try(plan: Plan, study: tuple[str, float], out: Path) -> list[Run]:
    """The runs that a study has still to do, as if it went through the grid in order."""
    tried = {trial.setting for trial in _trials(plan, study, out)} if _path(plan, study, out).exists() else set()
    others = [setting for setting in plan.grid(study[0]) if setting not in tried]
    runs = _cells(plan, study, others[: max(trials_of(plan, study) - len(tried), 0)])
    return [run for run in runs if not done(run, out)]


def trials_of(plan: Plan, study: tuple[str, float]) -> int:
    """How many different settings a study tries."""
    return min(plan.size.trials, len(plan.grid(study[0])))


def _cells(plan: Plan, study: tuple[str, float], settings: Sequence[Setting]) -> list[Run]:
    seeds = plan.size.tuning_seeds
    return [run for setting in settings for run in plan.cell(*study, setting, seeds=seeds)]


def tune_all(plan: Plan, *, out: Path, jobs: int) -> dict[tuple[str, float], Tuning]:
    """Tune for each ranker and coupling that is needed, studies side by side."""
    wanted = plan.tuning
    size = plan.size
    trials = {study: trials_of(plan, study) for study in wanted}
    total = sum(trials.values())
    before = sum(len(_trials(plan, study, out)) for study in wanted)
    left = {run.key: run for study in wanted for run in left_to_try(plan, study, out)}
    expected = clock_of(plan, out).total(list(left.values()), jobs)
    runs = f"{total} trials of {size.tuning_seeds * len(plan.worlds(0.0, [0]))} runs in {len(wanted)} studies"
    say(f"tuning: {runs}, {min(before, total)} trials done before; about {span(expected)} of it")
    cells = {
        study: [
            {path_of(run, out).name for run in plan.cell(*study, setting, seeds=size.tuning_seeds)}
            for setting in plan.grid(study[0])
        ]
        for study in wanted
    }

    def tried() -> int:
        known = finished(out)
        return sum(min(trials[study], sum(cell <= known for cell in mine)) for study, mine in cells.items())

    with bar("tuning", total, expected) as show:
        side_by_side(
            [(study_of, (plan, study, trials[study], out)) for study in wanted],
            jobs,
            lambda: show(tried()),
        )
    return {study: Tuning(*study, tuple(_trials(plan, study, out))) for study in wanted}


def known(plan: Plan, out: Path) -> dict[tuple[str, float], Tuning]:
    """The studies that are finished, from their files."""
    found = {}
    for study in plan.tuning:
        trials = _trials(plan, study, out) if _path(plan, study, out).exists() else []
        if len(trials) >= trials_of(plan, study):
            found[study] = Tuning(*study, tuple(trials))
    return found


def settings_of(tunings: Mapping[tuple[str, float], Tuning]) -> dict[tuple[str, float], Setting]:
    """What the tables use: the choice by validation, as in the paper."""
    return {study: tuning.by_validation.setting for study, tuning in tunings.items()}


def separate_settings(tunings: Mapping[tuple[str, float], Tuning]) -> dict[tuple[str, str, float], Setting]:
    """What LBD-Lips and LBD-Ber use: each the best of its own settings by validation."""
    return {
        (kind, *study): max(trials, key=lambda trial: trial.validation).setting
        for study, tuning in tunings.items()
        for kind in ("penalty", "drop")
        if (trials := tuning.of(kind))
    }


def study_of(plan: Plan, study: tuple[str, float], trials: int, out: Path) -> None:
    """Try settings until so many different ones are known."""
    from optuna.trial import TrialState

    ranker, _ = study
    size = plan.size
    kept = _study(plan, study, out, sampler=True)

    def attempt() -> None:
        trial = kept.ask()
        try:
            value = objective(trial)
        except BaseException:  # Ctrl-C too: said of the trial, so that the study can go on another time
            kept.tell(trial, state=TrialState.FAIL)
            raise
        kept.tell(trial, value)

    def objective(trial: Any) -> float:
        penalty = float(trial.suggest_categorical("penalty", list(size.penalties[ranker])))
        drop = float(trial.suggest_categorical("drop", list(size.drops)))
        results = [
            perform(run, out, plan.folder) for run in plan.cell(*study, (penalty, drop), seeds=size.tuning_seeds)
        ]
        trial.set_user_attr("likelihood", fmean(result["likelihood"] for result in results))
        return fmean(result["validation"]["clicks"] for result in results)

    for _ in range(PATIENCE * trials):
        if len(_trials(plan, study, out)) >= trials:
            return
        attempt()
    left = [cell for cell in plan.grid(ranker) if cell not in {trial.setting for trial in _trials(plan, study, out)}]
    for penalty, drop in left[: trials - len(_trials(plan, study, out))]:
        kept.enqueue_trial({"penalty": penalty, "drop": drop})
        attempt()


def _path(plan: Plan, study: tuple[str, float], out: Path) -> Path:
    """The file of a study; other settings make another one."""
    ranker, coupling = study
    size = plan.size
    example = plan.cell(ranker, coupling, UNTUNED, seeds=1)[0]
    choices = json.dumps([example.key, size.penalties[ranker], size.drops, size.seeds[: size.tuning_seeds]])
    digest = hashlib.sha256(choices.encode()).hexdigest()[:12]
    return out / "studies" / f"{plan.data}-{ranker}-{coupling:g}-{digest}.log"


def _study(plan: Plan, study: tuple[str, float], out: Path, *, sampler: bool = False) -> Any:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path = _path(plan, study, out)
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        storage = JournalStorage(JournalFileBackend(str(path)))
        made = optuna.create_study(study_name=path.stem, storage=storage, direction="maximize", load_if_exists=True)
    if sampler:
        made.sampler = optuna.samplers.TPESampler(seed=len(made.trials), n_startup_trials=6, multivariate=False)
    return made


def _trials(plan: Plan, study: tuple[str, float], out: Path) -> list[Trial]:
    """The different settings that were tried, in order."""
    found: dict[Setting, Trial] = {}
    for trial in _study(plan, study, out).trials:
        if trial.state.is_finished() and trial.value is not None:
            setting = (float(trial.params["penalty"]), float(trial.params["drop"]))
            found[setting] = Trial(setting, trial.value, float(trial.user_attrs["likelihood"]))
    return list(found.values())
