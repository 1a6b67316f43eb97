"""A training step of LBD over the step of DLA: the same network, batch and data, in turns; and what a sample costs.

`python -m benchmarks lbd_step` prints every form of the penalty, and what `lbd` takes once to learn its observation.
A step is what training does with a batch: the loss, its gradient, the clipping and the optimiser; one thread.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import median
from typing import Final, TypeAlias

import numpy as np

from benchmarks.base import Result
from clickprism.click_models.coupled import CoupledUser
from clickprism.data.normalise import normalised
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.debias.base import Learner, NetworkMethod
from clickprism.debias.batches import shares
from clickprism.debias.dla import DualLearning
from clickprism.debias.lbd import Decoupling
from clickprism.debias.lbd_paper import LipschitzBernoulli
from clickprism.debias.steepness import ObservationSettings
from clickprism.evaluation.measures import Measure, evaluate
from clickprism.rankers.mlp import MLP
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.training.distributed import Group
from clickprism.training.fit import fit
from clickprism.training.network import _Loop, _optimiser, torch_set_for
from clickprism.training.settings import FitSettings
from clickprism.types import Clicks, Dataset

MOST: Final = 3.0
ROUNDS: Final = 9
SLOW: Final = {"chain", "autograd"}  # these take part in every third round
HIDDEN: Final = ((512, 256, 128), (64, 32))
WIDTHS: Final = (64, 700)
SIZES: Final = (64, 256)
DEFAULT: Final = "lbd_paper"
FORMS: Final[dict[str, NetworkMethod]] = {
    "dla": DualLearning(),
    DEFAULT: LipschitzBernoulli(),
    "output": LipschitzBernoulli(form="output", share=1.0),
    "projection": LipschitzBernoulli(form="projection", share=1.0),
    "chain": LipschitzBernoulli(form="chain", share=1.0),
    "autograd": LipschitzBernoulli(form="autograd", share=1.0),
    "lbd": Decoupling(observation=ObservationSettings(lists=500, epochs=1)),
}
SAMPLED: Final = LipschitzBernoulli()
EXACT: Final = LipschitzBernoulli(form="chain", share=1.0)
FREE: Final = LipschitzBernoulli(penalty=0.0)
SEEDS: Final = (0, 1, 2)  # each draws the weights of the coupling anew
RUNS: Final = 4
EPOCHS: Final = 30
SLACK: Final = 0.003
MEASURE: Final = Measure.parse("nDCG(exp)@10")
LOG: Final = SimulationSettings(frequency="each")
Case: TypeAlias = tuple[tuple[int, ...], int, int]


def run() -> list[Result]:
    """The default penalty within three steps of DLA, everywhere; and its ranker not below that of the exact one."""
    data = _data(train=1000, test=3000)
    clicks = simulate(data.train, CoupledUser(eta=0.3), sessions=100, seed=0, settings=LOG).clicks
    results = []
    for case in product(HIDDEN, WIDTHS, SIZES):
        spent = steps(clicks, *case)
        _print(case, spent)
        name = f"lbd_paper, {_named(case)}"
        unit = "CPU ms a step; peer: dla"
        results.append(Result(name, spent[DEFAULT], spent["dla"], 1 / MOST, unit, higher_is_better=False))
    _print_learning(clicks)
    return [*results, *quality(data)]


def steps(clicks: Clicks, hidden: tuple[int, ...], width: int, size: int) -> dict[str, float]:
    """The median CPU milliseconds of a step by each method, the methods in turns."""
    if width != clicks.lists.features.shape[1]:
        drawn = np.random.default_rng(0).uniform(-1, 1, (clicks.lists.documents, width)).astype(np.float32)
        clicks = replace(clicks, lists=replace(clicks.lists, features=drawn))
    settings = FitSettings(threads=1, batch_size=size)
    spent: dict[str, list[float]] = {name: [] for name in FORMS}
    with torch_set_for(settings):
        step = {name: _step(clicks, method, hidden, settings) for name, method in FORMS.items()}
        for each in range(ROUNDS + 1):
            for name in FORMS:
                if name not in SLOW or each % 3 == 0:
                    spent[name].append(1e3 * _cpu(step[name]))
    return {name: median(times[1:]) for name, times in spent.items()}


def _step(
    clicks: Clicks, method: NetworkMethod, hidden: tuple[int, ...], settings: FitSettings
) -> Callable[[], object]:
    """One step on the first batch of the log, as the training loop takes it."""
    learner = _learner(clicks, method, hidden)
    optimiser = _optimiser(learner, settings)
    loop = _Loop(learner, optimiser, clicks, settings=settings, validation=None, group=Group())
    share = next(shares(clicks, settings.batch_size))
    learner.train()
    return lambda: loop._step(share, "in the benchmark")


def _learner(clicks: Clicks, method: NetworkMethod, hidden: tuple[int, ...]) -> Learner:
    return method.learner(MLP(hidden=hidden).build(clicks.lists.features.shape[1]), clicks)


def quality(data: Dataset) -> list[Result]:
    """Rankers by the sampled penalty less those by the exact one, run by run: the same log and first weights.

    The unit is the run, so that chance in training counts: a test over queries takes the runs at hand for granted.
    """
    gaps, effects, exacts = [], [], []
    for seed in SEEDS:
        clicks = simulate(data.train, CoupledUser(eta=0.3), sessions=100, seed=seed, settings=LOG).clicks
        for run in range(RUNS):
            settings = FitSettings(threads=1, epochs=EPOCHS, seed=100 * run + seed)
            sampled, exact, free = (_ndcg(data, clicks, method, settings) for method in (SAMPLED, EXACT, FREE))
            gaps.append(sampled - exact)
            effects.append(exact - free)
            exacts.append(exact)
    (gap, low, high), (effect, least, most) = _mean(gaps), _mean(effects)
    mean = float(np.mean(exacts))
    _say(f"exact penalty {mean:.4f}; less no penalty {effect:+.4f} ({least:+.4f} to {most:+.4f})")
    _say(f"sampled - exact {gap:+.4f} ({low:+.4f} to {high:+.4f}): {' '.join(f'{each:+.4f}' for each in gaps)}")
    unit = f"nDCG(exp)@10, {len(gaps)} runs; peer: exact penalty"
    return [
        Result("sampled penalty, high end", mean + high, mean, 1.0, unit),
        Result("sampled penalty, low end", mean + low, mean - SLACK, 1.0, f"{unit} less {SLACK}"),
    ]


def _ndcg(data: Dataset, clicks: Clicks, method: LipschitzBernoulli, settings: FitSettings) -> float:
    fitted = fit(clicks, method=method, ranker=MLP(hidden=HIDDEN[1]), settings=settings, show=False)
    return evaluate(data.test, fitted.model.score(data.test.lists), MEASURE).mean(MEASURE)


def _mean(values: list[float]) -> tuple[float, float, float]:
    """The mean and its 95% interval by Student's t."""
    from scipy.special import stdtrit

    mean, count = float(np.mean(values)), len(values)
    half = float(stdtrit(count - 1, 0.975)) * float(np.std(values, ddof=1)) / count**0.5
    return mean, mean - half, mean + half


def _data(*, train: int, test: int) -> Dataset:
    made = synthetic(SyntheticSettings(train_queries=train, validation_queries=10, test_queries=test))
    return normalised(made, "quantile")[0]


def _named(case: Case) -> str:
    hidden, width, size = case
    return f"{'-'.join(map(str, hidden))}, {width} features, {size} lists"


def _print(case: Case, spent: dict[str, float]) -> None:
    """Every form as a multiple of DLA, on standard error."""
    ratios = ", ".join(f"{name} {value / spent['dla']:.2f}" for name, value in spent.items() if name != "dla")
    _say(f"{_named(case)}: dla {spent['dla']:.2f} ms; over it: {ratios}")


def _print_learning(clicks: Clicks) -> None:
    """What `lbd` takes once, before its ranker is trained, beside an epoch of DLA."""
    with torch_set_for(FitSettings(threads=1)):
        once = _cpu(lambda: _learner(clicks, Decoupling(), HIDDEN[0]))
    settings = FitSettings(threads=1, epochs=3)
    told = []
    for hidden in HIDDEN:
        trained = partial(fit, clicks, method=DualLearning(), ranker=MLP(hidden=hidden), settings=settings, show=False)
        told.append(f"{_cpu(trained) / settings.epochs:.2f} s of {'-'.join(map(str, hidden))}")
    _say(f"lbd learns its observation once, {len(clicks)} lists: {once:.1f} CPU s; an epoch of dla: {', '.join(told)}")


def _cpu(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
