"""The loop for texts: the loss and its gradient, merged counts, freezing, calibration, early stopping."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from clickprism.data.texts import Texts
from clickprism.errors import DataError, SettingError
from clickprism.rankers.cross_encoder import CrossEncoderNetwork
from clickprism.rankers.language_model import CrossEncoder
from clickprism.rankers.text_tokens import Pairs
from clickprism.training.calibration import Calibration, log_loss, log_odds, logistic
from clickprism.training.split import split_queries
from clickprism.training.text import cross_entropy, fit_text, freeze
from clickprism.training.text_settings import TextFitSettings
from clickprism.types import Int64
from tests.rankers.tiny_language_model import WORDS, write_tiny_model

FAST = TextFitSettings(epochs=6, learning_rate=1e-2, head_rate=1e-2, batch_pairs=16, held_out=0.2, measured=0.2)
FAST = replace(FAST, patience=0, frozen=0, threads=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


def built(folder: Path, *, prior: bool = False) -> CrossEncoderNetwork:
    corpus = Texts.of(WORDS, [f"{word} plum" for word in WORDS])
    return CrossEncoder(model=str(folder), tokens=16, query_tokens=4, prior=prior).build(corpus)


def world(network: CrossEncoderNetwork, *, by_words: bool = True) -> tuple[Pairs, Int64, Int64]:
    """One word asks, three answer: relevant where one of them is the same, or else by the first of them alone."""
    rng = np.random.default_rng(0)
    queries, documents = rng.choice(WORDS, 240), [" ".join(rng.choice(WORDS, 3)) for _ in range(240)]
    relevant = np.array([query in document.split() for query, document in zip(queries, documents, strict=True)])
    if not by_words:
        relevant = np.array([document.split()[0] in WORDS[:5] for document in documents])
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
    steps: list[tuple[int, int | None, str]] = []
    results = []
    for _ in range(2):
        network = built(folder, prior=True)
        pairs, clicks, impressions = world(network, by_words=False)
        fitted = fit_text(
            network,
            pairs,
            clicks,
            impressions,
            settings=FAST,
            note=notes.append,
            progress=lambda done, total=None, text="": steps.append((done, total, text)),
        )
        results.append(network.odds(pairs))
    assert fitted.best < 0.9 * min(fitted.untrained, fitted.constant)
    np.testing.assert_array_equal(results[0], results[1])
    assert re.match(r"\d+ pairs, at most \d+ steps; the loss on held-out queries is ", notes[0])
    assert steps[0][0] == 1
    assert steps[-1][0] == steps[-1][1]
    assert sum(each.startswith("step ") for each in notes) == 2 * FAST.epochs * FAST.validations
    assert not any(each.requires_grad for each in network.parameters())


def test_the_prior_is_a_logistic_regression_on_the_clicks(folder: Path) -> None:
    """Without an epoch u and b are those of all clicks; the losses are of queries that had no part in them."""
    network = built(folder, prior=True)
    pairs, clicks, impressions = world(network)
    fitted = fit_text(network, pairs, clicks, impressions, settings=replace(FAST, epochs=0, most_impressions=0))
    assert not network.residual
    assert (fitted.best_step, fitted.history) == (0, ())
    assert fitted.best == fitted.untrained < fitted.constant
    scores = pairs.prior.astype(np.float64)
    spread = scores.std(axis=0)
    weights = logistic((scores - scores.mean(axis=0)) / spread, clicks, impressions, ridge=1.0)
    np.testing.assert_allclose(network.slopes.numpy() * spread, weights[:3], rtol=1e-4)
    parts = split_queries(pairs.query_rows, (0.2, 0.2), seed=0)
    train, last = parts == 0, parts == 2
    mean, spread = scores[train].mean(axis=0), scores[train].std(axis=0)
    weights = logistic((scores[train] - mean) / spread, clicks[train], impressions[train], ridge=1.0)
    odds = (scores[last] - mean) / spread @ weights[:3] + weights[3]
    assert fitted.best == pytest.approx(log_loss(odds, clicks[last], impressions[last]), abs=1e-5)


def test_training_starts_from_the_prior_and_ends_there_where_it_does_not_help(folder: Path) -> None:
    network = built(folder, prior=True)
    pairs, clicks, impressions = world(network)
    fit_text(network, pairs, clicks, impressions, settings=replace(FAST, epochs=0))
    alone = network.odds(pairs)
    wild = replace(FAST, learning_rate=1.0, head_rate=1.0, epochs=1, patience=1, warm_up=0)
    fitted = fit_text(network, pairs, clicks, impressions, settings=wild)
    assert fitted.best_step == 0
    np.testing.assert_allclose(network.odds(pairs), alone, atol=1e-5)
    fitted = fit_text(network, pairs, clicks, impressions, settings=FAST)
    assert fitted.history[0].loss < fitted.constant


def test_counts_weigh_as_repeated_pairs_do(folder: Path) -> None:
    """Two impressions of a pair are the same loss as the pair twice with one each."""
    network = built(folder)
    pairs, clicks, impressions = world(network)
    settings = replace(FAST, most_impressions=0, held_out=0, epochs=1, learning_rate=1e-9, head_rate=1e-9)
    whole = fit_text(network, pairs, clicks, impressions, settings=settings)
    losses = np.average([record.loss for record in whole.history], weights=[1, 1, 1])
    odds = network.odds(pairs)
    assert losses == pytest.approx(log_loss(odds, clicks, impressions), rel=0.02)
    assert whole.best_step == whole.history[-1].step


def test_probabilities_are_calibrated(folder: Path) -> None:
    network = built(folder)
    pairs, clicks, impressions = world(network)
    settings = replace(FAST, calibrate=False, most_impressions=0)
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

    def stop(done: int, total: int | None = None, text: str = "") -> None:
        del total, text
        if done == 3:
            raise KeyboardInterrupt

    network = built(folder)
    fitted = fit_text(network, pairs, clicks, impressions, settings=FAST, progress=stop)
    assert fitted.stopped == "interrupted"
    assert np.isfinite(network.odds(pairs)).all()


def test_the_learning_rate_warms_up_and_decays_as_the_schedule_says() -> None:
    paper = TextFitSettings.paper()
    assert paper.rate(4000, 10**6) == 1
    assert paper.rate(1000, 10**6) == 0.25
    assert paper.rate(16_000, 10**6) == 0.5
    assert paper.learning_rate == 2e-6
    ours = TextFitSettings(warm_up=0.1)
    assert ours.rate(5, 100) == 0.5
    assert ours.rate(100, 100) == pytest.approx(1 / 91)


def test_parts_are_of_whole_queries_and_leave_some_to_learn_from() -> None:
    queries = np.repeat(np.arange(10), 3)
    for shares, counts in (((0.0, 0.0), (0, 0)), ((0.01, 0.2), (1, 2)), ((0.45, 0.45), (4, 4)), ((0.3, 0.0), (3, 0))):
        parts = split_queries(queries, shares, seed=0)
        assert tuple((parts == part).sum() // 3 for part in (1, 2)) == counts
        assert len(np.unique(np.stack([queries, parts]), axis=1).T) == 10
    assert not split_queries(np.repeat([0, 1], 2), (0.4, 0.4), seed=0).any()


def test_nothing_to_learn_from_is_said(folder: Path) -> None:
    network = built(folder)
    pairs, clicks, impressions = world(network)
    with pytest.raises(DataError, match="has no click"):
        fit_text(network, pairs, np.zeros_like(clicks), impressions)
    with pytest.raises(DataError, match="nothing that was not clicked"):
        fit_text(network, pairs, impressions, impressions)
    with pytest.raises(DataError, match="240 pairs but 3 clicks"):
        fit_text(network, pairs, clicks[:3], impressions)
    with pytest.raises(SettingError, match="epochs must be at least 1 where there is no prior"):
        fit_text(network, pairs, clicks, impressions)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epochs", -1),
        ("frozen", 2.0),
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
