"""InfoRank: the likelihood by hand, forms that are one another, what was seen, a score that no position reaches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clickprism.click_models.pbm import PositionUser
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.debias.anchor import FLAT
from clickprism.debias.inforank import Independence, InfoRank, InfoRankLearner
from clickprism.debias.loop import batches
from clickprism.debias.position_based import PositionAware
from clickprism.errors import SettingError
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.types import Batch, Clicks, Lists

FIT = FitSettings(epochs=3, batch_size=16, threads=1, seed=1)
LONG = FitSettings(epochs=60, batch_size=8, threads=1, seed=0)


def learner_of(clicks: Clicks, *, spoiled: bool = True, **settings: Any) -> InfoRankLearner:
    """A learner on a small network, with all that starts at 0 drawn at random."""
    torch.manual_seed(0)
    learner = InfoRank(**settings).learner(MLP(hidden=(6, 4)).build(clicks.lists.features.shape[1]), clicks)
    if spoiled:
        with torch.no_grad():
            for parameter in (*learner.own.parameters(), *learner.tower.parameters()):
                parameter.add_(torch.randn(parameter.shape))
            assert learner.curve is not None
            learner.curve.copy_(torch.linspace(2, -2, len(learner.curve)))
    return learner


def first(clicks: Clicks) -> Batch:
    return next(batches(clicks, 16))


def test_without_a_change_if_unseen_it_is_pal(clicks: Clicks) -> None:
    """At the start d = 0: the likelihood is that of a position-only product."""
    torch.manual_seed(0)
    pal = PositionAware().learner(MLP(hidden=(6, 4)).build(clicks.lists.features.shape[1]), clicks)
    parts = learner_of(clicks, spoiled=False).loss(first(clicks))
    assert parts["clicks"].item() == pytest.approx(pal.loss(first(clicks))["clicks"].item(), rel=1e-6)
    assert parts["information"].item() == 0.0


@pytest.mark.parametrize("form", [{}, {"observation": "anchored"}])
def test_the_likelihood_by_a_loop(clicks: Clicks, form: dict[str, Any]) -> None:
    learner, batch = learner_of(clicks, **form).double(), first(clicks)
    batch = replace(batch, features=batch.features.double())
    total = 0.0
    for row in range(len(batch.mask)):
        for place in np.flatnonzero(batch.mask[row].numpy()):
            odds = learner.conditional(batch.features[row, place][None], batch.positions[row, place][None])
            seen, unseen, known = (torch.sigmoid(each).item() for each in odds)
            chance = (known * seen + (1 - known) * unseen) * known
            count, shown = batch.clicks[row, place].item(), batch.impressions[row].item()
            total -= count * np.log(chance) + (shown - count) * np.log1p(-chance)
    assert learner.loss(batch)["clicks"].item() == pytest.approx(total / len(batch.mask), rel=1e-5)


def test_an_anchored_observation_is_one_for_all_at_the_first_position(clicks: Clicks) -> None:
    logs = learner_of(clicks, observation="anchored").log_observation(
        torch.from_numpy(clicks.lists.features[:50].copy())
    )
    assert logs[:, 0].std() < 1e-6
    assert logs[:, 1].std() > 0.1


@pytest.mark.parametrize("form", [{}, {"observation": "anchored"}])
def test_the_served_score_is_relevance_at_the_first_position(clicks: Clicks, form: dict[str, Any]) -> None:
    """The ranker takes features alone: its order is that of P(R | O = 1, x, k = 1), wherever documents stood."""
    learner = learner_of(clicks, **form)
    documents = torch.from_numpy(clicks.lists.features[:50].copy())
    with torch.no_grad():
        served = learner.ranker(documents) + learner.base_odds
        at_first = learner.conditional(documents, torch.ones(50, dtype=torch.int64))
        below = learner.conditional(documents, torch.full((50,), 5))
    torch.testing.assert_close(at_first.seen, served)
    assert torch.equal(at_first.seen, below.seen)


def test_the_information_takes_the_dependence_out() -> None:
    """Delta-CI, |P(R | O = 1, x) - P(R | O = 0, x)|: with the information at most half of that without it."""
    data = synthetic(SyntheticSettings(train_queries=100, validation_queries=2, test_queries=2))
    log = simulate(data.train, PositionUser(), sessions=10_000, seed=0).clicks
    documents, positions = torch.from_numpy(log.lists.features[log.rows]), torch.from_numpy(log.positions).long()
    gaps = {}
    for eta in (0.0, 0.5):

        def watch(_: int, learner: Any, eta: float = eta) -> None:
            with torch.no_grad():
                odds = learner.conditional(documents, positions)
            gaps[eta] = float((torch.sigmoid(odds.seen) - torch.sigmoid(odds.unseen)).abs().mean())

        settings = FitSettings(epochs=30, batch_size=16, threads=1, seed=0)
        fit(log, method=InfoRank(eta=eta), ranker=MLP(hidden=(8,)), settings=settings, watch=watch)
    assert 0 < gaps[0.5] < gaps[0.0] / 2


def test_recorded_views_train_the_observation() -> None:
    """With a beacon in the log the curve is that of the users, and the loss is two cross entropies."""
    data = synthetic(SyntheticSettings(train_queries=100, validation_queries=2, test_queries=2))
    log = simulate(data.train, PositionUser(), sessions=20_000, seed=0, settings=SimulationSettings(seen=True))
    fitted = fit(log.clicks, method=InfoRank(), ranker=Linear(), settings=LONG)
    assert fitted.observation is not None
    truth = log.observation / log.observation[0]
    assert np.abs(fitted.observation - truth).max() < 0.03
    learner, batch = learner_of(log.clicks), first(log.clicks)
    odds = learner.conditional(batch.features[batch.mask], batch.positions[batch.mask])
    seen, clicked = torch.sigmoid(odds.observed), torch.sigmoid(odds.seen)
    shown = batch.impressions[:, None].expand(batch.mask.shape)[batch.mask]
    assert batch.seen is not None
    counts, hits = batch.seen[batch.mask], batch.clicks[batch.mask]
    by_hand = -(counts * seen.log() + (shown - counts) * (1 - seen).log()).sum() / len(batch.mask)
    parts = learner.loss(batch)
    assert parts["observation"].item() == pytest.approx(by_hand.item(), rel=1e-4)
    by_hand = -(hits * clicked.log() + (counts - hits) * (1 - clicked).log()).sum() / len(batch.mask)
    assert parts["clicks"].item() == pytest.approx(by_hand.item(), rel=1e-4)


def test_how_it_was_trained_says_what_held_out_clicks_are_judged_by(clicks: Clicks) -> None:
    """A log without a beacon trains the model of Eq. 12; held-out clicks with one are judged by the same."""
    learner, batch = learner_of(clicks), first(clicks)
    told = replace(batch, seen=batch.impressions[:, None] * batch.mask)
    assert torch.equal(learner.click_logits(told), learner.click_logits(batch))
    assert set(learner.loss(told)) == {"clicks", "information"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"eta": -1.0}, "eta must be at least 0"),
        ({"eta": float("nan")}, "eta must be at least 0"),
        ({"observation": "all"}, "observation must be one of position, anchored"),
        ({"start": 1.0}, "start must be between 0 and 1"),
        ({"observation_rate": 0.0}, "observation_rate must be above 0"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        InfoRank(**wrong)


@pytest.mark.parametrize("of", ["dla", "pal", "regression_em", "lbd_paper"])
def test_the_plug_leaves_a_method_alone_that_does_not_depend_on_being_seen(clicks: Clicks, of: Any) -> None:
    """At the start d = 0: every part of the loss is the method's own, and the information is 0."""
    found: dict[bool, dict[str, float]] = {}
    for method in (Independence(of=of).method(), Independence(of=of)):
        torch.manual_seed(0)
        learner = method.learner(MLP(hidden=(6, 4)).build(clicks.lists.features.shape[1]), clicks)
        torch.manual_seed(1)
        found[method.name == of] = {name: part.item() for name, part in learner.loss(first(clicks)).items()}
    assert found[False].pop("information") == 0.0
    assert found[False] == pytest.approx(found[True])


def test_the_plug_moves_scores_by_what_relevance_loses(clicks: Clicks) -> None:
    torch.manual_seed(0)
    learner = Independence(of="pal").learner(Linear().build(clicks.lists.features.shape[1]), clicks)
    batch = first(clicks)
    with torch.no_grad():
        learner.inner.get_parameter("seen").copy_(torch.linspace(3, -3, clicks.max_position))
        before = learner.inner.click_logits(batch)
        learner.own[-1].bias.fill_(2.0)  # type: ignore[operator]
        after, inner = learner.click_logits(batch), learner.inner.click_logits(batch)
    torch.testing.assert_close(inner, before)
    lower = (before - after)[batch.mask]
    at_first = batch.positions[batch.mask] == 1
    assert float(lower[at_first].abs().max()) < 1e-4
    assert float(lower[~at_first].min()) > 0


@pytest.mark.parametrize("of", ["pal", "regression_em"])
def test_the_plug_takes_the_information_of_the_probabilities_of_the_method(clicks: Clicks, of: Any) -> None:
    """P(click) of the method is s(odds of relevance) times its observation, at d = 0."""
    torch.manual_seed(0)
    learner = Independence(of=of).learner(MLP(hidden=(6,)).build(clicks.lists.features.shape[1]), clicks)
    batch = first(clicks)
    with torch.no_grad():
        odds = learner.conditional(batch.features[batch.mask], batch.positions[batch.mask])
        logs = learner.inner.click_logits(batch)[batch.mask] - torch.nn.functional.logsigmoid(odds.seen)
    assert learner.inner.base_odds < -0.5
    for place in range(1, clicks.max_position + 1):
        here = logs[batch.positions[batch.mask] == place]
        assert here.numel() == 0 or float(here.max() - here.min()) < 1e-4


def test_the_plug_on_lbd_resumes_as_without_a_break(clicks: Clicks, tmp_path: Path) -> None:
    method = Independence(of="lbd", settings={"observation": {"epochs": 2, "companion": [4]}})
    whole = fit(clicks, method=method, ranker=Linear(), settings=FIT, out=tmp_path / "whole").model
    fit(clicks, method=method, ranker=Linear(), settings=replace(FIT, epochs=1), out=tmp_path / "half")
    again = fit(clicks, method=method, ranker=Linear(), settings=FIT, out=tmp_path / "half", resume=True).model
    assert np.array_equal(whole.score(clicks.lists), again.score(clicks.lists))


def test_the_plug_names_the_setting_of_the_method_that_is_wrong() -> None:
    with pytest.raises(SettingError, match=r"settings\.max_wait must be a known setting \(did you mean 'max_weight'"):
        Independence(of="dla", settings={"max_wait": 1})
    with pytest.raises(SettingError, match="of must be one of"):
        Independence(of="click")  # type: ignore[arg-type]


def moving_log(*, quality: float, queries: int = 60, seed: int = 0) -> tuple[Clicks, np.ndarray[Any, Any]]:
    """A log of an engine that knows more than the features, with a little noise each day, and its users' curve.

    Relevance is the sum of the features and of noise; the engine knows a share `quality` of the latter. It shows its
    top six of twenty, which users observe with probability 1 / position.
    """
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(queries, 20, 3)).astype(np.float32)
    hidden = rng.normal(size=(queries, 20))
    utility = features.sum(2) / np.sqrt(3) + hidden
    attraction = 1 / (1 + np.exp(-(1.5 * utility - 1.5)))
    rows, positions, clicks, curve = [], [], [], 1 / np.arange(1, 7)
    for query in range(queries):
        for _ in range(12):
            score = features[query].sum(1) / np.sqrt(3) + quality * hidden[query] + rng.normal(0, 0.5, 20)
            shown = np.argsort(-score)[:6]
            rows.append(query * 20 + shown)
            positions.append(np.arange(1, 7))
            clicks.append(rng.binomial(20, curve * attraction[query, shown]))
    lists = Lists(features.reshape(-1, 3), np.arange(queries + 1) * 20, np.array([f"q{i}" for i in range(queries)]))
    entries = (np.concatenate(each) for each in (rows, positions, clicks))
    flat_rows, flat_positions, flat_clicks = entries
    return (
        Clicks(
            lists,
            np.arange(len(rows) + 1) * 6,
            flat_rows,
            flat_positions.astype(np.int32),
            flat_clicks,
            np.full(len(rows), 20),
        ),
        curve,
    )


def test_a_log_with_moving_documents_gives_the_curve_and_what_the_engine_knows() -> None:
    log, curve = moving_log(quality=1.0)
    learner = InfoRank().learner(Linear().build(3), log)
    assert learner.anchor is not None
    assert (learner.observation() - FLAT) / (1 - FLAT) == pytest.approx(curve, rel=0.25)
    assert float(learner.anchor.rho) > 0.2
    weights = learner.anchor.engine.numpy()
    assert weights.min() > 0.3 * weights.max() > 0  # the engine weighs the three features alike
    batch = next(batches(log, 4))
    documents, positions = batch.features[batch.mask], batch.positions[batch.mask]
    with torch.no_grad():
        odds = learner.conditional(documents, positions)
        beyond = odds.seen - learner.ranker(documents) - learner.base_odds
    residual = -positions.log() - documents @ learner.anchor.engine - learner.anchor.centre
    torch.testing.assert_close(beyond, learner.anchor.rho * residual, rtol=1e-4, atol=1e-5)


def test_an_engine_that_knows_the_features_only_says_nothing_beyond_them() -> None:
    log, _ = moving_log(quality=0.0)
    anchor = InfoRank().learner(Linear().build(3), log).anchor
    assert anchor is not None
    assert 0 <= float(anchor.rho) < 0.2


def test_a_log_whose_lists_never_change_or_a_setting_leaves_the_curve_free(clicks: Clicks) -> None:
    log, _ = moving_log(quality=1.0, queries=10)
    for method, given in ((InfoRank(), clicks), (InfoRank(log_model=False), log)):
        width = given.lists.features.shape[1]
        assert method.learner(Linear().build(width), given).anchor is None


def test_a_log_that_its_model_does_not_support_leaves_the_curve_free(monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = moving_log(quality=1.0, queries=10)
    monkeypatch.setattr("clickprism.log_model.model.DEEPEST", 5)
    assert InfoRank().learner(Linear().build(3), log).anchor is None


def test_a_resumed_run_with_a_model_of_the_log_is_as_without_a_break(tmp_path: Path) -> None:
    log, _ = moving_log(quality=1.0, queries=30)
    whole = fit(log, method=InfoRank(), ranker=Linear(), settings=FIT, out=tmp_path / "whole").model
    fit(log, method=InfoRank(), ranker=Linear(), settings=replace(FIT, epochs=1), out=tmp_path / "half")
    again = fit(log, method=InfoRank(), ranker=Linear(), settings=FIT, out=tmp_path / "half", resume=True).model
    assert np.array_equal(whole.score(log.lists), again.score(log.lists))
