"""The loop for texts: the loss and its gradient, merged counts, freezing, balance, calibration, early stopping."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from clickprism.errors import DataError, SettingError
from clickprism.rankers.cross_encoder import CrossEncoder, CrossEncoderNetwork
from clickprism.rankers.text_tokens import Pairs
from clickprism.training.calibration import Calibration, log_loss, log_odds, logistic
from clickprism.training.text import cross_entropy, fit_text, freeze, held_out_queries
from clickprism.training.text_settings import TextFitSettings, TextRecord
from clickprism.types import Int64
from tests.rankers.tiny_language_model import WORDS, write_tiny_model

FAST = TextFitSettings(
    epochs=6, learning_rate=3e-3, batch_pairs=16, probe=60, held_out=0.2, patience=0, frozen=0, threads=1
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


def built(folder: Path, pooling: str = "match") -> CrossEncoderNetwork:
    torch.manual_seed(1)
    return CrossEncoder(str(folder), pooling, tokens=16, query_tokens=4).build()  # type: ignore[arg-type]


def world(network: CrossEncoderNetwork, *, seed: int = 0) -> tuple[Pairs, Int64, Int64]:
    """One word asks, three answer: relevant where one of them is the same."""
    rng = np.random.default_rng(seed)
    queries, documents = rng.choice(WORDS, 240), [" ".join(rng.choice(WORDS, 3)) for _ in range(240)]
    relevant = np.array([query in document.split() for query, document in zip(queries, documents, strict=True)])
    impressions = rng.integers(1, 30, 240)
    clicks = rng.binomial(impressions, np.where(relevant, 0.9, 0.3))
    texts = [f"{query} {WORDS[i % 10]}" for i, query in enumerate(queries)]
    return network.pairs(texts, documents), clicks, impressions


def test_the_loss_is_that_of_single_impressions_and_its_gradient_is_right() -> None:
    odds = torch.tensor([-1.5, 0.2, 4.0], dtype=torch.float64, requires_grad=True)
    clicked, shown = torch.tensor([1.0, 3.0, 2.0]).double(), torch.tensor([4.0, 3.0, 5.0]).double()
    loss = cross_entropy(odds, clicked, shown - clicked)
    chance = 1 / (1 + np.exp(-odds.detach().numpy()))
    singles = -clicked.numpy() * np.log(chance) - (shown - clicked).numpy() * np.log(1 - chance)
    np.testing.assert_allclose(loss.detach().numpy(), singles, rtol=1e-12)
    assert torch.autograd.gradcheck(lambda x: cross_entropy(x, clicked, shown - clicked), [odds])
    far = cross_entropy(torch.tensor([-500.0, 500.0]), torch.ones(2), torch.ones(2))
    assert torch.isfinite(far).all()


def test_it_learns_and_the_same_seed_gives_the_same(folder: Path) -> None:
    notes: list[str] = []
    steps: list[tuple[int, int, TextRecord | None]] = []
    results = []
    for _ in range(2):
        network = built(folder)
        pairs, clicks, impressions = world(network)
        fitted = fit_text(
            network,
            pairs,
            clicks,
            impressions,
            settings=FAST,
            note=notes.append,
            show=lambda *each: steps.append(each),
        )
        results.append(network.odds(pairs))
    assert fitted.best < fitted.untrained
    assert fitted.best < fitted.constant
    np.testing.assert_array_equal(results[0], results[1])
    assert notes[0].startswith("one epoch: ")
    assert steps[0][0] == 1
    assert steps[-1][0] == steps[-1][1]
    assert sum(record is not None for _, _, record in steps) == 2 * FAST.epochs * FAST.validations
    assert not any(each.requires_grad for each in network.parameters())


def test_a_teacher_is_imitated_before_clicks_are_learned(folder: Path) -> None:
    """Clicks that say nothing leave the ranking of the teacher, on the scale of the clicks."""
    network = built(folder)
    pairs, clicks, impressions = world(network)
    teacher = clicks / impressions - 7.0
    random = np.random.default_rng(1).binomial(impressions, 0.6)
    settings = replace(FAST, imitate=8, epochs=1, held_out=0)
    fit_text(network, pairs, random, impressions, teacher=teacher, settings=settings)
    alone = built(folder)
    fit_text(alone, pairs, random, impressions, settings=settings)
    taught, untaught = (np.corrcoef(each.odds(pairs), teacher)[0, 1] for each in (network, alone))
    assert taught > untaught + 0.1
    chance = 1 / (1 + np.exp(-network.odds(pairs)))
    assert np.average(chance, weights=impressions) == pytest.approx(0.6, abs=0.05)


def test_counts_weigh_as_repeated_pairs_do(folder: Path) -> None:
    """Two impressions of a pair are the same loss as the pair twice with one each."""
    network = built(folder)
    pairs, clicks, impressions = world(network)
    settings = replace(FAST, most_impressions=0, held_out=0, probe=0, epochs=1, learning_rate=1e-9, head_rate=1e-9)
    whole = fit_text(network, pairs, clicks, impressions, settings=settings)
    losses = np.average([record.loss for record in whole.history], weights=[1, 1, 1])
    odds = network.odds(pairs)
    assert losses == pytest.approx(log_loss(odds, clicks, impressions), rel=0.02)
    assert np.isnan(whole.constant)
    assert whole.best_step == whole.history[-1].step


@pytest.mark.parametrize("balance", [0.0, 1.0])
def test_balance_leaves_probabilities_calibrated(folder: Path, balance: float) -> None:
    network = built(folder)
    pairs, clicks, impressions = world(network)
    settings = replace(FAST, balance=balance, calibrate=False, most_impressions=0)
    fit_text(network, pairs, clicks, impressions, settings=settings)
    chance = 1 / (1 + np.exp(-network.odds(pairs)))
    assert np.average(chance, weights=impressions) == pytest.approx(clicks.sum() / impressions.sum(), abs=0.04)


def test_what_is_frozen_stays(folder: Path) -> None:
    network = built(folder)
    before = {name: each.detach().clone() for name, each in network.named_parameters()}
    pairs, clicks, impressions = world(network)
    fit_text(network, pairs, clicks, impressions, settings=replace(FAST, frozen=0.5, epochs=1, held_out=0))
    moved = {name for name, each in network.named_parameters() if not torch.equal(each, before[name])}
    assert any("layer.1" in name for name in moved)
    assert not any("layer.0" in name or "embeddings" in name for name in moved)
    freeze(network, share=0, embeddings=False)
    assert all(each.requires_grad for each in network.parameters())


def test_early_stopping_and_interrupts_keep_the_best(folder: Path) -> None:
    network = built(folder)
    pairs, clicks, impressions = world(network)
    wild = replace(FAST, learning_rate=0.5, head_rate=0.5, patience=2, warm_up=0, epochs=20)
    fitted = fit_text(network, pairs, clicks, impressions, settings=wild)
    assert fitted.stopped == "patience"
    assert fitted.best <= fitted.untrained

    def stop(step: int, _steps: int, _record: TextRecord | None) -> None:
        if step == 3:
            raise KeyboardInterrupt

    network = built(folder)
    fitted = fit_text(network, pairs, clicks, impressions, settings=FAST, show=stop)
    assert fitted.stopped == "interrupted"
    assert np.isfinite(network.odds(pairs)).all()


def test_the_papers_schedule_and_ours() -> None:
    paper = TextFitSettings.paper()
    assert paper.rate(4000, 10**6) == 1
    assert paper.rate(1000, 10**6) == 0.25
    assert paper.rate(16_000, 10**6) == 0.5
    assert paper.learning_rate == 2e-6
    ours = TextFitSettings(warm_up=0.1)
    assert ours.rate(5, 100) == 0.5
    assert ours.rate(100, 100) == pytest.approx(1 / 91)
    assert TextFitSettings(schedule="constant", warm_up=0).rate(50, 100) == 1


def test_held_out_queries_are_whole_and_never_all() -> None:
    queries = np.repeat(np.arange(10), 3)
    for share, count in ((0.0, 0), (0.01, 1), (0.5, 5), (0.9, 9)):
        held = held_out_queries(queries, share, seed=0)
        assert held.sum() == 3 * count
        assert len(set(queries[held]) & set(queries[~held])) == 0
    assert not held_out_queries(np.zeros(4, np.int64), 0.5, seed=0).any()


def test_nothing_to_learn_from_is_said(folder: Path) -> None:
    network = built(folder)
    pairs, clicks, impressions = world(network)
    with pytest.raises(DataError, match="has no click"):
        fit_text(network, pairs, np.zeros_like(clicks), impressions)
    with pytest.raises(DataError, match="nothing that was not clicked"):
        fit_text(network, pairs, impressions, impressions)
    with pytest.raises(DataError, match="240 pairs but 3 clicks"):
        fit_text(network, pairs, clicks[:3], impressions)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epochs", 0),
        ("frozen", 2.0),
        ("balance", 1.5),
        ("held_out", 0.95),
        ("schedule", "cosine"),
        ("learning_rate", 0.0),
        ("seed", -1),
    ],
)
def test_settings_are_checked(field: str, value: object) -> None:
    with pytest.raises(SettingError, match=field):
        TextFitSettings(**{field: value})  # type: ignore[arg-type]


def test_logistic_regression_has_no_gradient_left() -> None:
    rng = np.random.default_rng(2)
    inputs, shown = rng.normal(size=(50, 3)), rng.integers(1, 9, 50)
    clicks = rng.binomial(shown, 0.4)
    weights = logistic(inputs, clicks, shown, ridge=np.array([0.5, 2.0, 0.0]))
    chance = 1 / (1 + np.exp(-(inputs @ weights[:3] + weights[3])))
    gradient = np.append(inputs, np.ones((50, 1)), axis=1).T @ (shown * chance - clicks)
    np.testing.assert_allclose(gradient + weights * [0.5, 2.0, 0, 0], 0, atol=1e-5)


def test_calibration_never_turns_a_ranking_round() -> None:
    scores = np.array([0.0, 1.0, 2.0])
    assert Calibration.fit(scores, np.array([90, 50, 10]), np.full(3, 100)).slope == 0
    flat = Calibration.fit(np.ones(3), np.array([1, 2, 3]), np.full(3, 4))
    assert flat == Calibration(0.0, log_odds(np.array([6]), np.array([12])))
