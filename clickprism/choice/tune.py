"""`tune`: which observation model and which ranker to take, by the log alone."""

from __future__ import annotations

import hashlib
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import numpy as np

from clickprism._util.files import write_file
from clickprism._util.processes import side_by_side
from clickprism._util.tables import to_json
from clickprism.choice import words
from clickprism.choice.candidates import CHOSEN_FROM, RANKERS, Candidate, supported
from clickprism.choice.criterion import Gain, estimated_ndcg
from clickprism.choice.folder import begin, only_one
from clickprism.choice.material import COLUMNS, Material, positions_linked, prepared, save_material
from clickprism.choice.rule import chosen_method, chosen_ranker
from clickprism.choice.trials import (
    final_trial,
    named,
    observation_trial,
    ranker_trial,
    scores_of,
    target_of,
    tried_of,
)
from clickprism.data.logged import Logged
from clickprism.errors import DataError, SettingError
from clickprism.types import Float64

if TYPE_CHECKING:
    from clickprism.model import Model

Say: TypeAlias = Callable[[str], None]
MODEL: Final = "model"
NAIVE: Final = "naive"
RESULT: Final = "choice.json"
FIRST_RUNG: Final = 2000  # queries on which every ranker is tried; of more, the better half is tried on all
"""Successive halving pays only where there are more."""
GRACE: Final = 30.0  # seconds, at least


@final
@dataclass(frozen=True)
class TuneSettings:
    """What is searched, and how long.

    Attributes:
        budget: seconds; trials that have not ended by then are left out, but for what a result needs. Where none has,
            the first may take half as much again, or half a minute; a single process always ends its trial.
        seed: of everything random.
        processes: how many trials at a time; the result does not depend on it unless the budget ends.
        methods: observation models to choose from, names of `METHODS`; `click` is always among them.
        rankers: to choose from, names of `RANKERS`.
    """

    budget: float = 600.0
    seed: int = 0
    processes: int = 2
    methods: tuple[str, ...] = CHOSEN_FROM
    rankers: tuple[str, ...] = tuple(RANKERS)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.budget) and self.budget > 0):
            raise SettingError("budget", self.budget, "be above 0 seconds")
        if self.seed < 0:
            raise SettingError("seed", self.seed, "be at least 0")
        if self.processes < 1:
            raise SettingError("processes", self.processes, "be at least 1")
        if not self.rankers:
            raise SettingError("rankers", self.rankers, "name at least one")
        for method in self.methods:
            Candidate(method, self.rankers[0])
        for ranker in self.rankers:
            Candidate("click", ranker)


@final
@dataclass(frozen=True, eq=False)
class Choice:
    """What was chosen, and why.

    Attributes:
        chosen: the candidate, as `method/ranker`.
        words: the same for people.
        why: sentences.
        numbers: what the reasons rest on; `observation` is the curve by position, where there is one.
        header: of the table of what was tried.
        rows: its cells.
        model: trained on all queries; takes raw features.
        naive: the same ranker, trained on clicks as they are.
    """

    chosen: str
    words: str
    why: tuple[str, ...]
    numbers: Mapping[str, Any]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    model: Model
    naive: Model

    def __repr__(self) -> str:
        return f"Choice({self.chosen!r})"

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "format": "clickprism tune",
            "version": 1,
            "chosen": self.chosen,
            "words": self.words,
            "why": list(self.why),
            "numbers": dict(self.numbers),
            "trials": {"header": list(self.header), "rows": [list(row) for row in self.rows]},
        }


def tune(
    logged: Logged,
    *,
    settings: TuneSettings | None = None,
    out: Path | str | None = None,
    progress: Say | None = None,
) -> Choice:
    """Choose an observation model and a ranker by the log alone, and train the ranker on all of it.

    The observation model is `clickprism.choice.pooled`: clicks are left as they are unless a position curve
    predicts those of held-out queries better, and features bend it if they predict more. The ranker is a steady one
    within chance of the highest nDCG by estimated clicks in the first place, on queries that it did not learn from. The
    rule is `clickprism.choice.rule`.

    Args:
        logged: the log; its documents have features.
        settings: what is searched, and how long.
        out: a folder in which every trial is a file; called again, what was done is not done again.
        progress: called with what is going on.

    >>> from clickprism.simulation.worlds import WorldSettings, make_world
    >>> world = make_world(WorldSettings(queries=40, sessions=4000, days=2, features=6, seed=3))
    >>> choice = tune(world.logged, settings=TuneSettings(processes=1, methods=("pooled",), rankers=("linear",)))
    >>> choice.chosen
    'pooled/linear'
    """
    settings = settings or TuneSettings()
    if not logged.has_features:
        remedy = "Log the features of each document as it was shown, or run: clickprism relevance estimate"
        raise DataError("the documents of the log have no features, by which a ranker scores them", remedy=remedy)
    if not logged.clicks.clicks.any():
        raise DataError("there is nothing to learn from: the log has no click")
    if out is None:
        with tempfile.TemporaryDirectory(prefix="clickprism-tune-") as passing:
            return _Search(logged, settings, Path(passing), progress).run()
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    with only_one(folder, "tune"):
        return _Search(logged, settings, folder, progress).run()


@final
class _Search:
    """The search, stage by stage."""

    def __init__(self, logged: Logged, settings: TuneSettings, folder: Path, progress: Say | None) -> None:
        self.logged, self.settings, self.folder = logged, settings, folder
        self.say: Say = progress or (lambda _text: None)
        self.deadline = time.monotonic() + settings.budget
        self.material, self.normaliser = prepared(logged)
        self.left_out: list[str] = []
        begin(folder, _identity(self.material, settings))
        save_material(self.material, folder)

    def run(self) -> Choice:
        """All of it."""
        clicks = self.material.clicks
        places, linked = self.material.places, positions_linked(clicks)
        names = supported(self.settings.methods, linked=linked, patterns=places.knows_clicks)
        tried = self._observations(names)
        told = {name: tried_of(self.folder, name) for name in tried}
        verdict = chosen_method(told, linked=linked)
        method, why = verdict.method, list(verdict.why)
        if len(told) == 1 and self.left_out:
            why = [words.UNTRIED]
        why += words.unsupported(self.settings.methods, names, linked=linked)
        values, ranker, because = self._rankers(method)
        candidate = Candidate(method, ranker)
        for name, where in ((candidate.name, MODEL), (f"click/{ranker}", NAIVE)):
            self.say(f"training {name} on all queries")
            final_trial(str(self.folder), name, where, self.settings.seed)
        why = [*why, because]
        if self.left_out:
            why.append(f"Not tried for want of time: {', '.join(self.left_out)}; a larger --budget tries all.")
        numbers: dict[str, Any] = {
            "linked": linked,
            "pooled": {name: asdict(gain) for name, gain in verdict.pooled.items()},
            "moved": {name: asdict(gain) for name, gain in verdict.moved.items()},
            "estimated": {name: gain.value for name, gain in values.items()},
            "seconds": dict(named(self.folder)),
            "observation": told[method].about.get("curve"),
            **{
                key: told[method].about[key]
                for key in ("trust", "bend", "browsing", "popular")
                if key in told[method].about
            },
        }
        models = [self._final(where) for where in (MODEL, NAIVE)]
        refused = {name: each.about["refused"] for name, each in told.items()}
        rows = words.rows(refused, verdict.pooled, verdict.moved, values)
        choice = Choice(
            candidate.name, candidate.words, tuple(why), numbers, words.HEADER, tuple(map(tuple, rows)), *models
        )
        write_file(self.folder / RESULT, to_json(choice.plain()) + "\n")
        return choice

    def _final(self, where: str) -> Model:
        """The model of a folder, taught to take raw features."""
        from clickprism.model import Model

        model = Model.load(self.folder / where)
        if model.normaliser is None:
            model = model.with_normaliser(self.normaliser)
            model.save(self.folder / where)
        return model

    def _observations(self, names: Sequence[str]) -> list[str]:
        """Fit observation models; which were done in time. `click` always is, and it is quick."""
        observation_trial(str(self.folder), "click", self.settings.seed)
        tasks = {name: (observation_trial, (str(self.folder), name, self.settings.seed)) for name in names[1:]}
        return ["click", *self._run(tasks, "observation models")]

    def _rankers(self, method: str) -> tuple[dict[str, Gain], str, str]:
        """Try rankers on the targets of the chosen model: what each reaches, the one to take, and why."""
        lists, seed = len(self.material.lists), self.settings.seed
        names = [name for name in RANKERS if name in self.settings.rankers]
        if len(names) == 1:
            return {}, names[0], words.of_ranker(names[0], names[0], {}, {})
        target = target_of(self.folder, method)
        rungs = [FIRST_RUNG, lists] if lists > 2 * FIRST_RUNG else [lists]
        values: dict[str, Float64] = {}
        for number, rung in enumerate(rungs):
            candidates = {name: f"{method}/{name}" for name in names}
            tasks = {
                name: (ranker_trial, (str(self.folder), candidate, seed, rung))
                for name, candidate in candidates.items()
            }
            done = self._run(tasks, f"rankers on {rung:,} queries")
            if not done:
                break
            found = {name: scores_of(self.folder, candidates[name], rung) for name in names if name in done}
            every = {name: estimated_ndcg(self.material.lists, scores, target) for name, scores in found.items()}
            kept = ~np.isnan(next(iter(every.values())))
            values = {name: each[kept] for name, each in every.items()}
            if number + 1 < len(rungs):
                better = sorted(values, key=lambda name: -float(values[name].mean()))[: (len(values) + 1) // 2]
                names = [name for name in names if name in better]
        if not values:
            return {}, names[0], words.of_ranker(names[0], names[0], {}, {})
        chosen, best = chosen_ranker(values)
        means = {f"{method}/{name}": Gain.mean(each) for name, each in values.items()}
        leads = {name: Gain.mean(values[best] - each) for name, each in values.items()}
        return means, chosen, words.of_ranker(chosen, best, {n: float(v.mean()) for n, v in values.items()}, leads)

    def _late(self, some: bool) -> bool:
        """Whether the time is over; while nothing is done, for there is no choice then, some more is given."""
        more = 0.0 if some else max(self.settings.budget / 2, GRACE)
        return time.monotonic() > self.deadline + more

    def _run(self, tasks: Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]], what: str) -> list[str]:
        """Do trials until the time is over; the names of those done, in their order."""
        done: set[str] = set()
        self.say(f"{what}: 0 of {len(tasks)}")
        for name in self._results(list(tasks.values()), until=lambda: self._late(bool(done))):
            done.add(name)
            self.say(f"{what}: {len(done)} of {len(tasks)}")
            if self._late(True):
                break
        finished = [name for name, (_, given) in tasks.items() if given[1] in done]
        self.left_out += [str(given[1]) for _, given in tasks.values() if given[1] not in done]
        return finished

    def _results(
        self, tasks: list[tuple[Callable[..., Any], tuple[Any, ...]]], *, until: Callable[[], bool]
    ) -> Iterator[str]:
        if self.settings.processes > 1 and len(tasks) > 1:
            yield from side_by_side(tasks, self.settings.processes, until=until)
            return
        for call, given in tasks:
            yield call(*given)


def _identity(material: Material, settings: TuneSettings) -> dict[str, Any]:
    """What trials depend on: the log, and the settings but for the time they have."""
    clicks = material.clicks
    found = hashlib.sha256()
    for values in (clicks.lists.features, *(getattr(clicks, name) for name in COLUMNS)):
        found.update(np.ascontiguousarray(values).tobytes())
    return {
        "format": "clickprism tune",
        "log": found.hexdigest()[:16],
        "seed": settings.seed,
        "methods": list(settings.methods),
        "rankers": list(settings.rankers),
    }
