"""Several processes train as one does: shares of a batch, two gloo processes on loopback, errors that end all."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from clickprism.debias.base import Learner, Method
from clickprism.debias.click import Click
from clickprism.debias.dla import DualLearning
from clickprism.debias.ipw import InversePropensity
from clickprism.debias.loop import pad, shares
from clickprism.debias.losses import score, softmax_loss
from clickprism.debias.position import PositionBias
from clickprism.errors import SettingError, TrainingError
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.training.distributed import alone, joined, place, share_of_threads
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings, Fitted, Scorer, Validation
from clickprism.types import Batch, Clicks, Float64, JudgedLists
from reproduce.common.pair_debias import PairDebias
from tests.conftest import make_clicks, make_judged
from tests.waiting import LIMIT, reserved_port

SETTINGS = FitSettings(epochs=4, batch_size=16, threads=1, seed=5, clip_norm=0.5, evaluate_every=2)
RANKER = MLP(hidden=(16, 8))
TREES = LambdaMART(trees=30, leaves=8, min_data_in_leaf=5)
CURVE = tuple(1 / place for place in range(1, 13))
PLAN = {"step": 0, "press": 0, "die": 0}  # at which step of a process something happens to it


class Counting(Learner):
    """A learner that counts clicks by position beside the gradient, and weighs its loss by them."""

    counts: torch.Tensor

    def __init__(self, ranker: nn.Module, positions: int) -> None:
        super().__init__(ranker)
        self.register_buffer("counts", torch.ones(positions))

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        PLAN["step"] += 1
        if PLAN["step"] == PLAN["press"]:
            os.kill(os.getpid(), signal.SIGINT)
        if PLAN["step"] == PLAN["die"]:
            os._exit(7)
        weight = (self.counts[0] / self.counts)[batch.positions - 1]
        return {"ranking": softmax_loss(score(self.ranker, batch), batch.clicks * weight, mask=batch.mask)}

    def observation(self) -> Float64:
        return (self.counts / self.counts[0]).double().numpy()

    def statistics(self, batch: Batch) -> torch.Tensor:
        return torch.zeros(len(self.counts)).index_add(0, batch.positions.flatten() - 1, batch.clicks.flatten())

    def update(self, sums: torch.Tensor) -> None:
        self.counts.mul_(0.9).add_(sums)


@dataclass(frozen=True)
class CountingMethod(Method):
    name = "counting"

    def learner(self, ranker: nn.Module, clicks: Clicks) -> Learner:
        return Counting(ranker, clicks.max_position)


def world() -> tuple[JudgedLists, Clicks]:
    judged = make_judged(lists=50, features=5, seed=7)
    return judged, make_clicks(judged, seed=8)


def agreement(judged: JudgedLists) -> Validation:
    return Validation("r", lambda score: float(np.corrcoef(score(judged.lists), judged.grades)[0, 1]))


METHODS: dict[str, tuple[Any, dict[str, Any]]] = {
    "dla": (DualLearning(), {}),
    "adam": (DualLearning(), {"optimiser": "adam", "learning_rate": 0.01, "weight_decay": 1e-3}),
    "held-out clicks": (DualLearning(), {}),
    "self-normalised": (InversePropensity(CURVE, self_normalise=True), {}),
    "statistics": (CountingMethod(), {}),
    "batches of one": (DualLearning(), {"batch_size": 1, "epochs": 2}),
    "shared memory": (DualLearning(), {}),
}
WIDE = MLP(hidden=(128, 128))  # whose gradient is long enough for the board


def trained(name: str, out: Path | None = None) -> Fitted:
    """A small training; 50 lists in batches of 16 leave a last batch of 2, and batches of one leave process 1 none."""
    judged, clicks = world()
    method, change = METHODS[name]
    validation = clicks if name == "held-out clicks" else agreement(judged)
    settings = replace(SETTINGS, **change)
    ranker = WIDE if name == "shared memory" else RANKER
    return fit(clicks, method=method, ranker=ranker, settings=settings, validation=validation, out=out)


def facts(fitted: Fitted) -> dict[str, Any]:
    """What a process came to, in plain numbers; a listwise loss leaves a constant in the scores open."""
    _, clicks = world()
    scores = fitted.model.score(clicks.lists)
    return {
        "losses": [list(record.loss.values()) for record in fitted.history],
        "norms": [record.gradient_norm for record in fitted.history],
        "values": [record.validation for record in fitted.history if record.validation is not None],
        "scores": (scores - scores.mean()).tolist(),
        "observation": [] if fitted.observation is None else fitted.observation.tolist(),
        "best": fitted.best_epoch,
        "stopped": fitted.stopped,
    }


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[Any]]]:
    """What each of two processes came to in each job, one job after the other; they are started as torchrun does."""
    folder = tmp_path_factory.mktemp("two")
    spawn = multiprocessing.get_context("spawn")
    with reserved_port() as port:
        started = [spawn.Process(target=_work, args=(folder, rank, port), daemon=True) for rank in range(2)]
        for process in started:
            process.start()
        for process in started:
            process.join()
    results = {
        job: [json.loads((folder / f"{job}-{rank}.json").read_text()) for rank in range(2)] for job in [*JOBS][:-1]
    }
    results["die"] = [json.loads((folder / "die-0.json").read_text()), started[1].exitcode]
    return folder, results


def _work(folder: Path, rank: int, port: int) -> None:
    values = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
    os.environ |= {"MASTER_ADDR": "127.0.0.1"} | {name: str(value) for name, value in values.items()}
    for job, work in JOBS.items():
        result: Any
        try:
            result = work(folder, rank)
        except BaseException as error:
            result = f"{type(error).__name__}: {error}"
        (folder / f"{job}-{rank}.json").write_text(json.dumps(result))


def _train_all(folder: Path, _rank: int) -> dict[str, Any]:
    return {name: facts(trained(name, folder / name)) for name in METHODS}


def _resume(folder: Path, rank: int) -> dict[str, Any]:
    judged, clicks = world()
    out = folder / "run" if rank == 0 else None
    for epochs in (2, 4):
        fitted = fit(
            clicks,
            method=DualLearning(),
            ranker=RANKER,
            settings=replace(SETTINGS, epochs=epochs),
            validation=agreement(judged),
            out=out,
            resume=True,
        )
    return facts(fitted)


def _interrupted(_folder: Path, rank: int) -> dict[str, Any]:
    """Ctrl-C in process 1 only, in its second epoch."""
    _, clicks = world()
    PLAN.update(step=0, press=6 * rank)
    fitted = fit(clicks, method=CountingMethod(), ranker=Linear(), settings=SETTINGS)
    return {"stopped": fitted.stopped, "epochs": len(fitted.history), "steps": PLAN["step"]}


def _failing(_folder: Path, _rank: int) -> None:
    """Validation fails, which only the first process does."""
    _, clicks = world()

    def measure(_: Scorer) -> float:
        raise SettingError("measure", 1, "work")

    fit(clicks, method=DualLearning(), ranker=Linear(), settings=SETTINGS, validation=Validation("m", measure))


def grown(name: str, folder: Path) -> dict[str, Any]:
    """Trees on clicks per exposure, or by an objective of their own."""
    judged, clicks = world()
    method: Any = Click()
    if name == "objective":
        clicks = replace(clicks, clicks=np.where(clicks.clicks > 0, clicks.list_impressions, 0))
        method = PairDebias()
    settings = FitSettings(threads=1, patience=2)
    fitted = fit(clicks, method=method, ranker=TREES, settings=settings, validation=agreement(judged))
    fitted.model.save(folder)
    (text,) = (file.read_text() for file in folder.glob("trees*.txt"))
    return {**facts(fitted), "text": text}


def _trees(folder: Path, rank: int) -> dict[str, Any]:
    return {name: grown(name, folder / f"{name} {rank}") for name in ("per exposure", "objective")}


def _position_bias(_folder: Path, _rank: int) -> None:
    _, clicks = world()
    clicks = replace(clicks, clicks=np.where(clicks.clicks > 0, clicks.list_impressions, 0))
    fit(clicks, method=PositionBias(), ranker=TREES, settings=SETTINGS)


def _dying(_folder: Path, rank: int) -> None:
    """Process 1 is gone in the midst of training."""
    _, clicks = world()
    PLAN.update(step=0, press=0, die=6 * rank)
    fit(clicks, method=CountingMethod(), ranker=Linear(), settings=SETTINGS)


def _unlike(_folder: Path, rank: int) -> None:
    _, clicks = world()
    fit(clicks, method=DualLearning(), ranker=Linear(), settings=replace(SETTINGS, epochs=4 + rank))


def _not_finite(_folder: Path, _rank: int) -> None:
    _, clicks = world()
    huge = replace(clicks.lists, features=np.full_like(clicks.lists.features, 3e38))
    fit(replace(clicks, lists=huge), method=DualLearning(), ranker=RANKER, settings=SETTINGS)


JOBS = {
    "train": _train_all,
    "resume": _resume,
    "interrupt": _interrupted,
    "fail": _failing,
    "unlike": _unlike,
    "not finite": _not_finite,
    "trees": _trees,
    "position": _position_bias,
    "die": _dying,
}


def test_shares_are_the_batch_and_even(clicks: Clicks) -> None:
    for size in (7, 16, 1):
        parts = [list(shares(clicks, size, shuffle=(3, 1), rank=rank, processes=3)) for rank in range(3)]
        for whole, *three in zip(shares(clicks, size, shuffle=(3, 1)), *parts, strict=True):
            assert sum(part.weight for part in three) == pytest.approx(1.0)
            mine = [part for part in three if part.weight > 0]
            assert sum(float(part.batch.clicks.sum()) for part in mine) == pytest.approx(
                float(whole.batch.clicks.sum())
            )
            assert {part.lists for part in three} == {len(whole.batch.clicks)}
            lists = [round(part.weight * part.lists) for part in three]
            assert max(lists) - min(lists) <= 1
            if min(lists) == max(lists):
                documents = [int(part.batch.mask.sum()) for part in three]
                assert max(documents) - min(documents) <= 11


Results = tuple[Path, dict[str, list[Any]]]


@pytest.mark.parametrize("name", METHODS)
def test_two_processes_train_the_model_that_one_trains(name: str, two: Results) -> None:
    results = two[1]["train"]
    assert isinstance(results[0], dict), results
    ours, theirs, alone = results[0][name], results[1][name], facts(trained(name))
    for key in ("losses", "norms", "values", "scores", "observation"):
        assert theirs[key] == ours[key]
        np.testing.assert_allclose(ours[key], alone[key], rtol=1e-5, atol=1e-5)
    assert (ours["best"], ours["stopped"]) == (alone["best"], alone["stopped"])


def test_only_the_first_process_writes(two: Results) -> None:
    folder = two[0] / "dla"
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3, 4]
    assert sorted(file.name for file in folder.iterdir()) == ["checkpoint.safetensors", "metrics.jsonl"]


def test_a_resumed_run_needs_the_checkpoint_in_the_first_process_only(two: Results) -> None:
    whole = facts(trained("dla"))
    for result in two[1]["resume"]:
        assert len(result["losses"]) == 4
        for key in ("losses", "values", "scores", "observation"):
            np.testing.assert_allclose(result[key], whole[key], rtol=1e-5, atol=1e-5)


def test_ctrl_c_in_one_process_ends_all_at_the_same_step(two: Results) -> None:
    assert two[1]["interrupt"] == [{"stopped": "interrupted", "epochs": 1, "steps": 6}] * 2


@pytest.mark.parametrize(
    ("job", "first", "second"),
    [
        ("fail", "SettingError: measure must work, got 1", "TrainingError: the first process failed"),
        (
            "unlike",
            "DataError: process 1 does not train what the others train",
            "DataError: the processes do not train the same: fit.epochs is 5 in process 1 and 4 in the first",
        ),
        ("not finite", "TrainingError: training is not finite", "TrainingError: training is not finite"),
        ("position", "SettingError: WORLD_SIZE must be 1 for LightGBM's own", "SettingError: WORLD_SIZE must be 1"),
        ("die", "TrainingError: process 0 lost the others (", "7"),
    ],
)
def test_an_error_of_one_ends_all(job: str, first: str, second: str, two: Results) -> None:
    for result, expected in zip(two[1][job], (first, second), strict=True):
        assert str(result).startswith(expected)


@pytest.mark.parametrize("name", ["per exposure", "objective"])
def test_two_processes_grow_one_ensemble_as_good_as_that_of_one(name: str, two: Results, tmp_path: Path) -> None:
    ours, theirs = (result[name] for result in two[1]["trees"])
    alone = grown(name, tmp_path / "model")
    assert ours == theirs
    assert "127.0.0.1" not in ours["text"]
    assert np.corrcoef(ours["scores"], alone["scores"])[0, 1] > 0.9
    assert ours["values"][-1] == pytest.approx(alone["values"][-1], abs=0.05)


def test_lost_processes_are_noticed_where_no_message_is_due() -> None:
    """Process 1 is gone while process 0 waits for something else, as LightGBM may."""
    code = (
        "import os, signal\n"
        "from clickprism.training import distributed\n"
        "from clickprism.training.distributed import joined\n"
        "distributed.GRACE = 0.1\n"
        "with joined() as group, group.watched():\n"
        "    group.wait()\n"
        "    os._exit(7) if group.rank else signal.pause()\n"
    )
    codes, errors = ended(code)
    assert codes == [TrainingError.exit_code, 7]
    assert errors[0].startswith("process 0 lost the others")


def test_an_error_of_all_leaves_no_thread_behind() -> None:
    """A thread that still waits for the others when Python exits would abort the process."""
    code = (
        "import sys, threading\n"
        "from clickprism.training.distributed import joined\n"
        "try:\n"
        "    with joined() as group, group.watched():\n"
        "        group.wait()\n"
        "        raise ValueError\n"
        "except ValueError:\n"
        "    sys.exit(1 + threading.active_count())\n"
    )
    assert ended(code) == ([2, 2], ["", ""])


def ended(code: str) -> tuple[list[int], list[str]]:
    """How two processes that run the code end: their exit codes, and what they write to standard error."""
    with reserved_port() as port:
        places = os.environ | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        command = [sys.executable, "-c", code]
        started = [
            subprocess.Popen(command, env=places | {"RANK": rank}, stderr=subprocess.PIPE, text=True) for rank in "01"
        ]
        errors = [process.communicate(timeout=LIMIT)[1] for process in started]
    return [process.returncode for process in started], errors


def test_the_folder_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert place() == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert place() == (0, 1)
    monkeypatch.setenv("RANK", "3")
    assert place() == (3, 4)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert share_of_threads(0) == max(1, len(os.sched_getaffinity(0)) // 4)
    assert share_of_threads(3) == 3
    monkeypatch.setenv("RANK", "4")
    with pytest.raises(SettingError, match="RANK must be below WORLD_SIZE, which is 4, got 4"):
        place()
    monkeypatch.setenv("RANK", "x")
    with pytest.raises(SettingError, match="RANK must be a whole number from 0, got 'x'"):
        place()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(SettingError, match="MASTER_ADDR must be set beside RANK and WORLD_SIZE"), joined():
        pass


def test_what_cannot_be_shared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from clickprism.experiments.compare import compare_methods
    from clickprism.experiments.settings import ExperimentSettings

    alone("a comparison", remedy="")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(SettingError, match=r"WORLD_SIZE must be 1 for a comparison, whose work is not shared.*--jobs"):
        compare_methods(ExperimentSettings())


def test_a_sum_over_the_batch_is_one_of_all_its_parts(clicks: Clicks) -> None:
    """By hand: the self-normalised loss of two halves that are told the sums of the whole."""
    learner = InversePropensity(CURVE, self_normalise=True).learner(Linear().build(5), clicks)
    whole = pad(clicks, np.arange(20))
    sums = torch.stack([whole.clicks.sum(), (whole.clicks * whole.positions).sum()])
    halves = [replace(pad(clicks, half), total=lambda _: sums) for half in (np.arange(5), np.arange(5, 20))]
    parts = [weight * learner.loss(half)["ranking"].item() for weight, half in zip((0.25, 0.75), halves, strict=True)]
    assert sum(parts) == pytest.approx(learner.loss(whole)["ranking"].item(), rel=1e-5)
