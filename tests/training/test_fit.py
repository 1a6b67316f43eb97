"""The training loop: what it optimises, validates, keeps, resumes and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from clickprism.debias.base import Method
from clickprism.debias.click import Click, ClickLearner
from clickprism.debias.dla import DualLearning
from clickprism.debias.ipw import InversePropensity
from clickprism.debias.loop import batches, pad
from clickprism.errors import DataError, SettingError, TrainingError
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings, Fitted, Scorer, Validation
from clickprism.types import Batch, Clicks, JudgedLists, Lists, concatenate

FAST = FitSettings(epochs=6, batch_size=16, threads=1, seed=5)
SMALL = MLP(hidden=(8, 4), dropout=0.2)


def agreement(judged: JudgedLists) -> Validation:
    """How well scores correlate with grades."""
    return Validation("r", lambda score: float(np.corrcoef(score(judged.lists), judged.grades)[0, 1]))


def scripted(values: list[float], *, higher_is_better: bool = True) -> Validation:
    """A validation that says these values, whatever the model."""
    left = iter(values)
    return Validation("script", lambda _: next(left), higher_is_better)


def test_padding_puts_lists_of_unequal_length_into_one_batch() -> None:
    lists = Lists(np.arange(6, dtype=np.float32).reshape(3, 2), np.array([0, 3]), np.array(["q"]))
    clicks = Clicks(
        lists,
        np.array([0, 2, 3]),
        np.array([2, 0, 1]),
        np.array([1, 2, 4], dtype=np.int32),
        np.array([3, 0, 1]),
        np.array([6, 2]),
    )
    batch = pad(clicks, np.array([1, 0]), scale=2.0)
    assert batch.features.tolist() == [[[2.0, 3.0], [0.0, 0.0]], [[4.0, 5.0], [0.0, 1.0]]]
    assert batch.mask.tolist() == [[True, False], [True, True]]
    assert batch.positions.tolist() == [[4, 1], [1, 2]]
    assert batch.clicks.tolist() == [[0.5, 0.0], [1.5, 0.0]]
    assert batch.impressions.tolist() == [1.0, 3.0]


def test_batches_cover_every_list_once_and_skip_empty_ones(clicks: Clicks) -> None:
    seen = [int(batch.mask.sum()) for batch in batches(clicks, 7, shuffle=(0, 1))]
    assert sum(seen) == len(clicks.rows)
    assert len(seen) == int(np.ceil(len(clicks) / 7))
    offsets, impressions = np.append(clicks.offsets, clicks.offsets[-1]), np.append(clicks.impressions, 5)
    empty = replace(clicks, offsets=offsets, impressions=impressions)
    assert sum(len(batch.clicks) for batch in batches(empty, 7)) == len(clicks)


def test_a_linear_ranker_converges_to_the_exact_answer() -> None:
    """One feature that tells two documents apart: at the optimum softmax equals the share of clicks, 3 to 1."""
    lists = Lists(np.array([[1.0], [0.0]], dtype=np.float32), np.array([0, 2]), np.array(["q"]))
    places = np.array([1, 2], dtype=np.int32)
    clicks = Clicks(lists, np.array([0, 2]), np.arange(2), places, np.array([3, 1]), np.array([4]))
    settings = FitSettings(epochs=100, optimiser="sgd", learning_rate=1.0, threads=1, patience=0)
    for method, odds in (
        (Click(), 3.0),
        (InversePropensity((1.0, 0.25)), 3 / 4),
        (InversePropensity((1.0, 0.25), floor=0.5), 3 / 2),
    ):
        model = fit(clicks, method=method, ranker=Linear(), settings=settings).model
        scores = model.score(lists)
        assert scores[0] - scores[1] == pytest.approx(np.log(odds), abs=1e-3)


@pytest.mark.parametrize("optimiser", ["adagrad", "adam", "adamw", "sgd"])
def test_every_optimiser_lowers_the_loss(optimiser: str, clicks: Clicks) -> None:
    settings = replace(FAST, optimiser=optimiser, learning_rate=0.01, weight_decay=1e-4)  # type: ignore[arg-type]
    fitted = fit(clicks, method=Click(), ranker=Linear(), settings=settings)
    losses = [record.loss["ranking"] for record in fitted.history]
    assert losses[-1] < losses[0]
    assert [record.epoch for record in fitted.history] == list(range(1, 7))
    assert fitted.stopped == "epochs"
    assert fitted.best_epoch == 6


def test_the_best_epoch_is_kept_and_patience_ends_training(clicks: Clicks) -> None:
    settings = replace(FAST, epochs=50, patience=3)
    fitted = fit(clicks, method=Click(), ranker=SMALL, settings=settings, validation=scripted([1, 3, 2, 2, 2, 9]))
    assert (fitted.best_epoch, fitted.best_value, fitted.stopped) == (2, 3, "patience")
    assert len(fitted.history) == 5
    two = fit(clicks, method=Click(), ranker=SMALL, settings=replace(FAST, epochs=2))
    np.testing.assert_array_equal(fitted.model.score(clicks.lists), two.model.score(clicks.lists))


def test_lower_may_be_better(clicks: Clicks) -> None:
    validation = scripted([3, 1, 2, 2, 2, 2], higher_is_better=False)
    assert fit(clicks, method=Click(), ranker=Linear(), settings=FAST, validation=validation).best_epoch == 2


def test_validation_happens_when_due(clicks: Clicks) -> None:
    settings = replace(FAST, epochs=5, evaluate_every=2)
    fitted = fit(clicks, method=Click(), ranker=Linear(), settings=settings, validation=scripted([1, 2, 3]))
    assert [record.validation for record in fitted.history] == [None, 1, None, 2, 3]


def test_held_out_clicks_can_validate(clicks: Clicks) -> None:
    held_out = clicks.take(np.arange(10))
    settings = replace(FAST, epochs=3)
    fitted = fit(clicks, method=DualLearning(), ranker=Linear(), settings=settings, validation=held_out)
    values = [record.validation for record in fitted.history]
    assert all(value is not None and value < 0 for value in values)
    assert fitted.best_value == max(value for value in values if value is not None)


def interrupted_after(epochs: int) -> Callable[[Scorer], float]:
    calls = 0

    def measure(_: Scorer) -> float:
        nonlocal calls
        calls += 1
        if calls > epochs:
            raise KeyboardInterrupt
        return float(calls)

    return measure


def test_ctrl_c_keeps_the_best_so_far(clicks: Clicks) -> None:
    validation = Validation("v", interrupted_after(2))
    fitted = fit(clicks, method=Click(), ranker=SMALL, settings=FAST, validation=validation)
    assert (fitted.stopped, fitted.best_epoch) == ("interrupted", 2)
    with pytest.raises(KeyboardInterrupt):
        fit(clicks, method=Click(), ranker=SMALL, settings=FAST, validation=Validation("v", interrupted_after(0)))


@dataclass(frozen=True)
class Interrupted(Method):
    """A method in whose fourth epoch Ctrl-C comes."""

    name = "interrupted"
    learns_observation = True

    def learner(self, ranker: nn.Module, clicks: Clicks) -> ClickLearner:
        learner, steps = ClickLearner(ranker), 0
        usual = learner.loss

        def loss(batch: Batch) -> dict[str, torch.Tensor]:
            nonlocal steps
            steps += 1
            if steps > 3 * 4:
                raise KeyboardInterrupt
            return usual(batch)

        learner.loss = loss  # type: ignore[method-assign]
        return learner


def test_ctrl_c_before_the_first_validation_keeps_the_last_epoch(clicks: Clicks) -> None:
    settings = replace(FAST, evaluate_every=5)
    fitted = fit(clicks, method=Interrupted(), ranker=Linear(), settings=settings, validation=scripted([1]))
    three = fit(clicks, method=Click(), ranker=Linear(), settings=replace(FAST, epochs=3))
    assert (fitted.best_epoch, fitted.best_value, fitted.stopped) == (3, None, "interrupted")
    np.testing.assert_array_equal(fitted.model.score(clicks.lists), three.model.score(clicks.lists))
    with pytest.raises(KeyboardInterrupt):
        fit(clicks, method=Interrupted(), ranker=LambdaMART(trees=5), settings=settings, observer=Linear())


def test_a_validation_that_is_no_number_stops(clicks: Clicks) -> None:
    for ranker in (Linear(), LambdaMART(trees=20)):
        with pytest.raises(DataError, match="validation by script gave nan"):
            fit(clicks, method=Click(), ranker=ranker, settings=FAST, validation=scripted([float("nan")] * 9))


def test_held_out_clicks_must_fit_the_log(clicks: Clicks, judged: JudgedLists) -> None:
    def check(held_out: Clicks, words: str) -> None:
        with pytest.raises(DataError, match=words):
            fit(clicks, method=DualLearning(), ranker=Linear(), settings=FAST, validation=held_out)

    check(replace(clicks, clicks=clicks.clicks * 0), "have no click")
    deeper = replace(clicks, positions=clicks.positions + 5)
    check(deeper, "go down to position 17, the log to 12")
    assert fit(clicks, method=Click(), ranker=Linear(), settings=FAST, validation=deeper).best_value is not None
    check(replace(clicks, lists=judged.lists.with_features(judged.lists.features[:, :3])), "held out have 3")


@pytest.mark.parametrize("optimiser", ["adagrad", "adam"])
def test_resuming_is_as_if_nothing_had_happened(
    optimiser: str, clicks: Clicks, judged: JudgedLists, tmp_path: Path
) -> None:
    settings = replace(FAST, optimiser=optimiser, learning_rate=0.01)  # type: ignore[arg-type]

    def run(out: Path | None, epochs: int, *, resume: bool = False) -> Fitted:
        return fit(
            clicks,
            method=DualLearning(),
            ranker=SMALL,
            settings=replace(settings, epochs=epochs),
            validation=agreement(judged),
            out=out,
            resume=resume,
        )

    whole = run(None, 6)
    run(tmp_path, 3)
    resumed = run(tmp_path, 6, resume=True)
    np.testing.assert_array_equal(resumed.model.score(clicks.lists), whole.model.score(clicks.lists))
    assert resumed.observation is not None
    np.testing.assert_array_equal(resumed.observation, whole.observation)
    assert resumed.best_epoch == whole.best_epoch
    strip = [(record.epoch, record.loss, record.validation) for record in resumed.history]
    assert strip == [(record.epoch, record.loss, record.validation) for record in whole.history]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert set(lines[0]["loss"]) == {"ranking", "observation"}


def test_a_checkpoint_of_other_settings_is_refused(clicks: Clicks, tmp_path: Path) -> None:
    settings = replace(FAST, epochs=1)
    fit(clicks, method=Click(), ranker=Linear(), settings=settings, out=tmp_path)
    changed = replace(settings, learning_rate=0.1)
    with pytest.raises(SettingError, match=r"fit\.learning_rate must be 0\.05 as in the checkpoint"):
        fit(clicks, method=Click(), ranker=Linear(), settings=changed, out=tmp_path, resume=True)
    with pytest.raises(SettingError, match=r"method\.name must be 'click' as in the checkpoint"):
        fit(clicks, method=DualLearning(), ranker=Linear(), settings=settings, out=tmp_path, resume=True)


def test_a_checkpoint_of_another_log_or_validation_is_refused(
    clicks: Clicks, judged: JudgedLists, tmp_path: Path
) -> None:
    settings = replace(FAST, epochs=1)
    fit(clicks, method=Click(), ranker=Linear(), settings=settings, validation=agreement(judged), out=str(tmp_path))
    with pytest.raises(SettingError, match="validation must be 'r' as in the checkpoint"):
        fit(clicks, method=Click(), ranker=Linear(), settings=settings, validation=clicks, out=tmp_path, resume=True)
    other = replace(clicks, lists=clicks.lists.with_features(clicks.lists.features + 1))
    validation = agreement(judged)
    with pytest.raises(SettingError, match="log must be"):
        fit(other, method=Click(), ranker=Linear(), settings=settings, validation=validation, out=tmp_path, resume=True)


def test_a_broken_checkpoint_is_refused(clicks: Clicks, tmp_path: Path) -> None:
    (tmp_path / "checkpoint.safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(DataError, match=r"checkpoint\.safetensors: is not a usable checkpoint"):
        fit(clicks, method=Click(), ranker=Linear(), settings=FAST, out=tmp_path, resume=True)


@dataclass(frozen=True)
class Exploding(Method):
    """A method whose loss goes wrong at the fifth step."""

    name = "exploding"
    factor: float = 1.0

    def learner(self, ranker: nn.Module, clicks: Clicks) -> ClickLearner:
        learner, steps = ClickLearner(ranker), 0
        usual = learner.loss

        def loss(batch: Batch) -> dict[str, torch.Tensor]:
            nonlocal steps
            steps += 1
            return {"ranking": usual(batch)["ranking"] * (self.factor if steps > 4 else 1.0)}

        learner.loss = loss  # type: ignore[method-assign]
        return learner


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (float("nan"), r"not finite in epoch 2, step 5 \(ranking is nan\).*lower fit\.learning_rate"),
        (float("inf"), r"not finite in epoch 2, step 5 \(ranking is inf\)"),
        (1e8, r"ran away: .* in epoch 2 after .* in the first\. Lower fit\.learning_rate"),
    ],
)
def test_divergence_stops_with_advice(factor: float, words: str, clicks: Clicks) -> None:
    with pytest.raises(TrainingError, match=words):
        fit(clicks, method=Exploding(factor), ranker=Linear(), settings=FAST)


def test_gradients_are_clipped(clicks: Clicks) -> None:
    settings = FitSettings(epochs=1, optimiser="sgd", learning_rate=1.0, clip_norm=1e-3, batch_size=1000, threads=1)
    model = fit(clicks, method=Click(), ranker=Linear(), settings=settings).model
    direction = model.score(Lists(np.eye(5, dtype=np.float32), np.array([0, 5]), np.array(["q"])))
    assert float(np.linalg.norm(direction)) == pytest.approx(1e-3, rel=1e-3)


def test_weight_decay_leaves_the_observation_alone(clicks: Clicks) -> None:
    plain, decayed = (
        fit(clicks, method=DualLearning(), ranker=Linear(), settings=replace(FAST, weight_decay=decay))
        for decay in (0.0, 10.0)
    )
    weights = [float(np.ptp(one.model.score(clicks.lists))) for one in (plain, decayed)]
    assert weights[1] < weights[0] / 2
    assert decayed.observation is not None
    assert decayed.observation[-1] < 0.5


def test_two_threads_give_the_same_model_twice(clicks: Clicks) -> None:
    settings = replace(FAST, threads=2)
    first, second = (fit(clicks, method=DualLearning(), ranker=SMALL, settings=settings).model for _ in range(2))
    np.testing.assert_array_equal(first.score(clicks.lists), second.score(clicks.lists))


def test_training_leaves_torch_as_it_was(clicks: Clicks) -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    fit(clicks, method=Click(), ranker=SMALL, settings=replace(FAST, threads=1 if threads > 1 else 2))
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.are_deterministic_algorithms_enabled()


def test_ten_times_the_sessions_take_the_same_steps(clicks: Clicks) -> None:
    tenfold = replace(clicks, clicks=clicks.clicks * 10, impressions=clicks.impressions * 10)
    again = concatenate([clicks] * 10).merge()
    np.testing.assert_array_equal(again.clicks, tenfold.clicks)
    one, ten = (fit(log, method=DualLearning(), ranker=Linear(), settings=FAST) for log in (clicks, again))
    for a, b in zip(one.history, ten.history, strict=True):
        assert a.step == b.step
        assert a.loss["ranking"] == pytest.approx(b.loss["ranking"], rel=1e-6)


def test_what_is_not_clicks_is_a_type_error_that_helps(judged: JudgedLists, clicks: Clicks) -> None:
    with pytest.raises(TypeError, match="fit learns from Clicks, not from JudgedLists; ideal_clicks"):
        fit(judged, method=Click(), ranker=Linear())  # type: ignore[arg-type]
    model = fit(clicks, method=Click(), ranker=Linear(), settings=FAST).model
    with pytest.raises(TypeError, match=r"judged lists hold theirs in \.lists"):
        model.score(judged)  # type: ignore[arg-type]
    assert repr(model) == "Model(Linear(), by click, 5 features, normaliser=False)"
    assert repr(clicks) == f"Clicks(60 ranked lists, 1200 sessions, {clicks.clicks.sum()} clicks)"


def test_an_observation_that_overflows_stops_with_advice(clicks: Clicks) -> None:
    settings = replace(FAST, learning_rate=1e6)
    with pytest.raises(TrainingError, match=r"not finite|ran away"):
        fit(clicks, method=DualLearning(), ranker=Linear(), settings=settings)


def test_a_log_without_clicks_or_with_features_that_are_not_finite_is_refused(
    clicks: Clicks, judged: JudgedLists
) -> None:
    with pytest.raises(DataError, match="no click"):
        fit(replace(clicks, clicks=clicks.clicks * 0), method=Click(), ranker=Linear())
    with pytest.raises(DataError, match="no ranked list shows a document"):
        fit(clicks.take([]), method=Click(), ranker=Linear())
    broken = judged.lists.features.copy()
    broken[3, 1] = np.nan
    with pytest.raises(DataError, match="features must be finite"):
        fit(replace(clicks, lists=judged.lists.with_features(broken)), method=Click(), ranker=Linear())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epochs", 0),
        ("batch_size", 0),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("learning_rate", float("inf")),
        ("weight_decay", float("nan")),
        ("clip_norm", -1.0),
        ("optimiser", "lbfgs"),
        ("seed", -1),
        ("seed", 2**45),
        ("threads", -1),
    ],
)
def test_settings_are_checked(field: str, value: object) -> None:
    with pytest.raises(SettingError, match=f"{field} must"):
        replace(FitSettings(), **{field: value})  # type: ignore[arg-type]
