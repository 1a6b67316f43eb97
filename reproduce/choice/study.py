"""How good is the ranker that `auto` chooses? Candidates on logs of simulated engines, judged over all candidates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from clickprism._util.processes import side_by_side
from clickprism.auto.checks import choose_ranker
from clickprism.data.logged import Logged
from clickprism.data.normalise import Normaliser
from clickprism.evaluation.measures import evaluate
from clickprism.log_model.model import LogModel, LogModelSettings
from clickprism.types import Float64, JudgedLists, Lists
from reproduce.choice.frame import ROUNDS, TREES
from reproduce.common.engines import EngineSettings, engine_world, judged_world

MEASURE: Final = "nDCG(exp)@10"
FEW_CLICKS: Final = 500
LEVELS: Final = 30  # of click rates, as labels of LightGBM
CLOSE: Final = 0.015  # of the best baseline of the tool
COLLECTIONS: Final = ("NFCorpus", "MQ2008", "LETOR-like")
RIVALS: Final = ("LightGBM", "ridge")
NAMES: Final = ("linear", "blend", "networks", "prior", "trees", "imitation")


@dataclass(frozen=True)
class Tried:
    """What the candidates reach in one world.

    Attributes:
        name: Name of the world.
        seed: Its seed.
        clicks: Number of clicks in the log.
        engine: nDCG of the engine itself.
        raw: nDCG of the chosen kind of ranker on raw clicks.
        rivals: nDCG of LightGBM's lambdarank and of a ridge regression within queries, on raw click rates.
        chosen: Name of the ranker that is used.
        values: nDCG of each candidate, by name.
        failed: Checks that failed.
        seconds: Seconds of the fit and of the candidates.
    """

    name: str
    seed: int
    clicks: int
    engine: float
    raw: float
    rivals: dict[str, float]
    chosen: str
    values: dict[str, float]
    failed: tuple[str, ...]
    seconds: float

    @property
    def ours(self) -> float:
        """Return the nDCG of the ranker that is used."""
        return self.raw if self.chosen == "raw clicks" else self.values[self.chosen]

    @property
    def regret(self) -> float:
        """Return how far it is below the best candidate in hindsight."""
        return max(*self.values.values(), self.raw) - self.ours


def try_log(name: str, seed: int, logged: Logged, test: JudgedLists, engine: Float64) -> Tried:
    """Fit the model of a log, train and choose, and judge all candidates on test queries."""
    begun = time.perf_counter()
    model = LogModel.fit(logged, settings=LogModelSettings(resamples=0))
    checked = choose_ranker(logged, model, seed=seed)
    seconds = time.perf_counter() - begun
    lists = test.lists.with_features(checked.normaliser(test.lists).features)

    def judged(scores: Float64) -> float:
        return float(evaluate(test, scores, MEASURE).mean(MEASURE))

    found = checked.candidates
    return Tried(
        name,
        seed,
        int(logged.clicks.clicks.sum()),
        judged(engine),
        judged(found.raw.make().score(lists)),
        {name: judged(scores) for name, scores in raw_rivals(logged, test.lists, checked.normaliser).items()},
        found.chosen if checked.use == "corrected" else "raw clicks",
        {each: judged(one.make().score(lists)) for each, one in found.found.items()},
        tuple(check.name for check in checked.checks if check.verdict == "failed"),
        seconds,
    )


def raw_rivals(logged: Logged, test: Lists, normaliser: Normaliser) -> dict[str, Float64]:
    """Return the scores of test documents by LightGBM and by a ridge regression, both on raw click rates.

    The ridge regression takes the features that `auto` takes.
    """
    import lightgbm

    clicks = logged.clicks
    rows, pair = np.unique(clicks.rows, return_inverse=True)
    shown = np.bincount(pair, weights=clicks.list_impressions)
    rate = np.bincount(pair, weights=clicks.clicks) / shown
    query = np.unique(clicks.lists.list_of[rows], return_inverse=True)[1]
    labels = np.minimum(np.round(LEVELS * rate), LEVELS)
    data = lightgbm.Dataset(clicks.lists.features[rows], labels, group=np.bincount(query))
    trees = lightgbm.train({**TREES, "label_gain": list(range(LEVELS + 1))}, data, ROUNDS)
    weight = np.sqrt(np.minimum(shown, 50.0))[:, None]  # as the tool weights its baselines
    own = normaliser(clicks.lists).features[rows].astype(np.float64)
    both = np.column_stack([own, rate])
    total = np.zeros((query.max() + 1, both.shape[1] + 1))
    np.add.at(total, query, np.column_stack([both, np.ones(len(rows))]) * weight**2)
    both = (both - (total[:, :-1] / total[:, -1:])[query]) * weight
    own, target = both[:, :-1], both[:, -1]
    ridge = np.linalg.solve(own.T @ own + 10.0 * np.eye(own.shape[1]), own.T @ target)
    predicted = np.asarray(trees.predict(test.features), dtype=np.float64)
    return {"LightGBM": predicted, "ridge": normaliser(test).features @ ridge}


def try_cell(settings: EngineSettings) -> Tried:
    """Try one simulated engine."""
    world = engine_world(settings)
    return try_log(settings.name, settings.seed, world.logged, world.test, world.engine)


def try_fold(collection: str, fold: int, settings: EngineSettings) -> Tried:
    """Try one fold of a collection with simulated users."""
    from reproduce.choice.collection import collection as nfcorpus
    from reproduce.choice.letor_lists import letor_like, merged_mq2008

    folds = {"NFCorpus": lambda: nfcorpus()[fold], "MQ2008": lambda: merged_mq2008(fold)}
    train, test = folds.get(collection, lambda: letor_like(fold))()
    world = judged_world(train, test, settings)
    name = f"{collection}, {settings.users}{', feedback' if settings.feedback else ''}"
    return try_log(name, settings.seed, world.logged, world.test, world.engine)


def try_tool(path: str, world_of: tuple[str, float, bool], seed: int, sizes: dict[str, int]) -> Tried:
    """Try one world of the tool `engine_worlds`, beside its own baselines."""
    from importlib.machinery import SourceFileLoader
    from importlib.util import module_from_spec, spec_from_loader

    from clickprism.types import Clicks

    users, quality, feedback = world_of

    loader = SourceFileLoader("engine_worlds", path)
    spec = spec_from_loader("engine_worlds", loader)
    if spec is None:
        raise RuntimeError(path)
    tool = module_from_spec(spec)
    loader.exec_module(tool)
    world = tool.make_world(seed, users=users, quality=quality, feedback=feedback, **sizes)
    x, _, grades, engine, rows = world
    cut, candidates, columns = len(x) * 2 // 3, x.shape[1], x.shape[2]
    rows = rows[rows[:, 0] < cut]
    names, row = np.unique(rows[:, 0] * candidates + rows[:, 1], return_inverse=True)
    lengths = np.bincount(names // candidates, minlength=cut)
    kept = np.flatnonzero(lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths[kept])]).astype(np.int64)
    lists = Lists(x.reshape(-1, columns)[names].astype(np.float32), offsets, kept.astype(np.str_))
    shown, searches = 10, len(rows) // 10
    clicks = Clicks(
        lists,
        np.arange(0, len(rows) + 1, shown),
        row.reshape(-1).astype(np.int64),
        (rows[:, 2] + 1).astype(np.int32),
        rows[:, 3].astype(np.int64),
        np.ones(searches, dtype=np.int64),
    )
    tests = len(x) - cut
    ids = np.arange(tests).astype(np.str_)
    documents = Lists(
        x[cut:].reshape(-1, columns).astype(np.float32), np.arange(0, tests * candidates + 1, candidates), ids
    )
    judged = JudgedLists(documents, grades[cut:].reshape(-1).astype(np.int32))
    logged = Logged(clicks, rows[::shown, 4].astype(np.int64))
    size = "".join(f", {value} {key}" for key, value in sizes.items())
    name = f"{users} {quality:g}{' feedback' if feedback else ''}{size}"
    made = try_log(name, seed, logged, judged, engine[cut:].reshape(-1))
    return replace(
        made, values={**made.values, **{f"tool: {key}": float(v) for key, v in tool.baselines(world).items()}}
    )


def try_all(
    tasks: Sequence[tuple[Callable[..., Tried], tuple[object, ...]]], *, processes: int, tell: Callable[[Tried], None]
) -> list[Tried]:
    """Return the results of all tasks, in their order."""
    found: list[Tried] = []
    for each in side_by_side(list(tasks), processes):
        found.append(each)
        tell(each)
    return sorted(found, key=lambda each: (each.name, each.seed))


def cell_tasks(cells: Iterable[EngineSettings], seeds: range) -> list[tuple[Callable[..., Tried], tuple[object, ...]]]:
    """Return a task for each cell and seed."""
    return [(try_cell, (replace(cell, seed=seed),)) for seed in seeds for cell in cells]


def fold_tasks(folds: range) -> list[tuple[Callable[..., Tried], tuple[object, ...]]]:
    """Return a task for each fold of the collections and each kind of users; the engine shows 15 of about 140."""
    kinds = (
        EngineSettings(users="mix", searches=60),
        EngineSettings(users="popularity", feedback=3.0, searches=60),
        EngineSettings(users="grid", searches=60),
        EngineSettings(users="cascade", searches=60),
        EngineSettings(users="trust", searches=60),
        EngineSettings(users="pbm", searches=30),
        EngineSettings(users="logit", searches=30),
    )
    return [
        (try_fold, (collection, fold, replace(kind, noise=0.6, shown=15, seed=fold)))
        for fold in folds
        for collection in COLLECTIONS
        for kind in kinds
    ]


def tool_tasks(path: Path, seeds: range) -> list[tuple[Callable[..., Tried], tuple[object, ...]]]:
    """Return a task for each of the 24 worlds of the tool and each seed, and for four of them with other sizes."""
    worlds = [
        (users, quality, feedback)
        for users in ("pbm", "mix", "lazy")
        for feedback in (False, True)
        for quality in (0.0, 0.3, 0.6, 0.9)
    ]
    four = (("pbm", 0.3, False), ("mix", 0.9, False), ("pbm", 0.6, True), ("lazy", 0.9, True))
    asked: list[tuple[tuple[str, float, bool], int, dict[str, int]]] = [
        *((world_of, seed, {}) for seed in seeds for world_of in worlds),
        *((world_of, seed, {"searches": 5}) for seed in seeds for world_of in four),
        *((world_of, seeds[0], {"queries": 2000}) for world_of in four),
    ]
    return [(try_tool, (str(path), *each)) for each in asked]


def table(tried: Sequence[Tried]) -> str:
    """Return the means over draws of each world, as Markdown."""
    head = [
        "world",
        "clicks",
        "engine",
        "raw clicks",
        *RIVALS,
        *NAMES,
        "used",
        "nDCG of `auto`",
        "regret",
        "against raw clicks",
    ]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name in dict.fromkeys(each.name for each in tried):
        own = [each for each in tried if each.name == name]
        numbers = [
            np.mean([each.engine for each in own]),
            np.mean([each.raw for each in own]),
            *(np.mean([each.rivals[key] for each in own]) for key in RIVALS),
            *(np.mean([each.values[key] for each in own]) for key in NAMES),
        ]
        used = ", ".join(f"{key} {count}" for key, count in _counts(each.chosen for each in own).items())
        ours, regret = (np.mean([getattr(each, key) for each in own]) for key in ("ours", "regret"))
        lead = np.mean([each.ours - each.raw for each in own])
        cells = [name, f"{np.mean([each.clicks for each in own]):.0f}", *(f"{number:.3f}" for number in numbers), used]
        lines.append(f"| {' | '.join([*cells, f'{ours:.3f}', f'{regret:.3f}', f'{lead:+.3f}'])} |")
    return "\n".join(lines) + "\n"


def summary(tried: Sequence[Tried]) -> str:
    """Return the figures that the promises are about, as a Markdown list."""
    names = list(dict.fromkeys(each.name for each in tried))
    by_name = {name: [each for each in tried if each.name == name] for name in names}
    regret = {name: float(np.mean([each.regret for each in own])) for name, own in by_name.items()}
    lead = {name: float(np.mean([each.ours - each.raw for each in own])) for name, own in by_name.items()}
    worst, least = max(regret, key=lambda name: regret[name]), min(lead, key=lambda name: lead[name])
    single = min(tried, key=lambda each: each.ours - each.raw)
    few = {name for name, own in by_name.items() if np.mean([each.clicks for each in own]) < FEW_CLICKS}
    rich = {name: value for name, value in regret.items() if name not in few}
    lines = [
        f"- {len(names)} worlds, {len(tried)} runs, {sum(each.seconds for each in tried):.0f} seconds.",
        f"- Regret against the best candidate in hindsight: {np.mean(list(regret.values())):.4f} on average, "
        f"{regret[worst]:.4f} at worst ({worst}); at worst {max(rich.values(), default=0.0):.4f} with {FEW_CLICKS} "
        "clicks or more.",
        f"- Against raw clicks: {np.mean(list(lead.values())):+.4f} on average, {lead[least]:+.4f} at worst ({least}); "
        f"the worst single run {single.ours - single.raw:+.4f} ({single.name}, seed {single.seed}).",
    ]
    for rival in RIVALS:
        lowest = min(tried, key=lambda each: each.ours - each.rivals[rival])
        mean = np.mean([each.ours - each.rivals[rival] for each in tried])
        lines.append(
            f"- Against {rival} on raw click rates: {mean:+.4f} on average, the worst single run "
            f"{lowest.ours - lowest.rivals[rival]:+.4f} ({lowest.name}, seed {lowest.seed})."
        )
    rivals = ("tool: ctr", "tool: first", "tool: exposure", "tool: prior")
    if all(rivals[0] in each.values for each in tried):
        means = {name: {key: np.mean([e.values[key] for e in own]) for key in rivals} for name, own in by_name.items()}
        ours = {name: float(np.mean([each.ours for each in own])) for name, own in by_name.items()}
        behind = {name: max(means[name].values()) - ours[name] for name in names}
        last = max(behind, key=lambda name: behind[name])
        below = [name for name in names if behind[name] > CLOSE]
        lines.append(
            f"- Against the best of the tool's ctr, first, exposure and prior: {behind[last]:.4f} below at worst "
            f"({last}); more than {CLOSE} below in {len(below)} of {len(names)} worlds ({'; '.join(below) or 'none'}); "
            f"mean of `auto` {np.mean(list(ours.values())):.4f}, of prior "
            f"{np.mean([each['tool: prior'] for each in means.values()]):.4f}."
        )
    return "\n".join(lines) + "\n"


def _counts(values: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in values:
        found[each] = found.get(each, 0) + 1
    return found
