"""How the observation of documents is learned: its shape and penalty, what is held out, and how one is chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from clickprism.debias import lbd
from clickprism.debias.anchor import FLAT, Anchor
from clickprism.debias.dla import DualLearning
from clickprism.debias.lbd import Decoupling, DocumentObservation, ObservationSettings, learn_observation
from clickprism.debias.loop import batches
from clickprism.errors import SettingError, TrainingError
from clickprism.rankers.linear import Linear
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.types import Batch, Clicks, Lists, concatenate

QUICK = ObservationSettings(companion=(4,), epochs=3)


def scattered(observed: DocumentObservation) -> DocumentObservation:
    with torch.no_grad():
        for parameter in observed.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return observed


def features_of(clicks: Clicks) -> torch.Tensor:
    return torch.from_numpy(clicks.lists.features)


@pytest.mark.parametrize("hidden", [0, 6], ids=["linear", "mlp"])
def test_the_penalty_is_the_mean_square_of_the_slope(hidden: int) -> None:
    """Over documents and positions, as autograd finds it, within a tenth over 20,000 random directions."""
    torch.manual_seed(0)
    observed = scattered(DocumentObservation(features=3, positions=4, hidden=hidden, flat=False))
    x = (0.3 * torch.randn(20, 3)).requires_grad_()
    logs, slope = observed.penalised(x.detach().repeat(1000, 1))
    assert torch.allclose(logs[:20], observed(x), atol=1e-6)
    assert (observed.steepness(x) > 0).all()
    columns = observed(x).unbind(-1)[1:]
    squares = [torch.autograd.grad(each.sum(), x, retain_graph=True)[0].square().sum(-1) for each in columns]
    assert slope.item() == pytest.approx(torch.stack(squares).sum().item() / 20 / 4, rel=0.1)


@pytest.mark.parametrize("hidden", [0, 6], ids=["linear", "mlp"])
def test_all_documents_start_with_the_same_value(hidden: int) -> None:
    x = torch.randn(7, 3)
    for flat in (False, True):
        observed = DocumentObservation(features=3, positions=4, hidden=hidden, flat=flat)
        assert torch.equal(observed(x), torch.cat([torch.zeros(1), observed.below]).expand(7, 4))
        assert torch.equal(observed.steepness(x), torch.ones(7))
        assert (len(observed.chain) == 0) is flat


def found(penalty: float, *likelihoods: float) -> Any:
    mean = sum(likelihoods) / len(likelihoods)
    return SimpleNamespace(choice=lbd.Choice(0, penalty, mean, 1), kept=np.array(likelihoods))


@pytest.mark.parametrize(
    ("bent", "chosen"),
    [
        ([(0.0, -2.0)], math.inf),  # the curve gains 0 and 2: mean 1, deviation 1, error .71
        ([(-1.0, -1.0)], math.inf),  # 1 and 1: error 0
        ([(-2.0, 1.0)], 0.0),  # 2 and -1: mean .5, error 1.06
        ([(-9.0, -9.0), (-2.0, 1.0)], 1.0),  # the best that bends
        ([(1.0, 1.0), (2.0, 2.0)], 1.0),
    ],
)
def test_the_curve_alone_must_be_better_by_a_standard_error(bent: list[tuple[float, float]], chosen: float) -> None:
    tried = [found(float(place), *each) for place, each in enumerate(bent)]
    assert lbd._chosen([*tried, found(math.inf, 0.0, 0.0)]).choice.penalty == chosen
    assert lbd._chosen(tried).choice.penalty < math.inf


def test_queries_are_held_out_and_not_sessions(clicks: Clicks) -> None:
    """Sessions with the same ranked list are one; another list of the query, the last place cut, is on its side."""
    entries = np.arange(len(clicks.rows))
    last = np.isin(entries, clicks.offsets[1:] - 1) & np.repeat(np.diff(clicks.offsets) > 1, np.diff(clicks.offsets))
    lengths = np.add.reduceat(~last, clicks.offsets[:-1])
    cut = replace(
        clicks,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        rows=clicks.rows[~last],
        positions=clicks.positions[~last],
        clicks=clicks.clicks[~last],
    )
    learn, check = lbd._split(concatenate([clicks, cut, clicks]), QUICK, np.random.default_rng(0))
    assert check is not None
    sides = [{int(query) for query in part.lists.list_of[part.rows]} for part in (learn, check)]
    assert not sides[0] & sides[1]
    assert len(learn) + len(check) == len(concatenate([clicks, cut]).merge().with_clicks())
    assert len(check) / (len(learn) + len(check)) == pytest.approx(0.2, abs=0.1)


def test_no_more_lists_are_used_than_asked_for(clicks: Clicks) -> None:
    learn, check = lbd._split(clicks.with_clicks(), replace(QUICK, lists=40), np.random.default_rng(0))
    assert check is None  # a fifth of forty lists is less than ten
    assert len(learn) == 40
    learn, check = lbd._split(clicks, replace(QUICK, lists=40, held_out=0.5), np.random.default_rng(0))
    assert check is not None
    assert 30 < len(learn) + len(check) <= 40


def test_the_same_seed_gives_the_same_observation_and_nothing_else_is_drawn(clicks: Clicks) -> None:
    """Nor does it matter what was drawn before, such as the weights of a ranker."""
    settings, found = replace(QUICK, held_out=0.5), []
    for seed, drawn in ((1, 0), (1, 7), (2, 0)):
        torch.manual_seed(seed)
        torch.rand(drawn)
        before = torch.get_rng_state()
        observed, choices = learn_observation(clicks, settings)
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.initial_seed() == seed
        found.append((observed(features_of(clicks)), choices))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]
    assert not torch.equal(found[0][0], found[2][0])


def test_the_best_epoch_is_kept_and_training_ends_soon_after(clicks: Clicks, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run of 200 epochs returns is what one returns that ends at the best of them."""
    epochs: list[int] = []
    every = batches

    def counted(log: Clicks, size: int, *, shuffle: tuple[int, int] | None = None) -> Iterator[Batch]:
        epochs.extend([] if shuffle is None else [shuffle[1]])
        return every(log, size, shuffle=shuffle)

    monkeypatch.setattr(lbd, "batches", counted)
    settings, found = replace(QUICK, held_out=0.5, penalties=(), epochs=200, patience=4), []
    for _ in range(2):
        torch.manual_seed(0)
        found.append(learn_observation(clicks, settings))
        settings = replace(settings, epochs=found[0][1][0].epochs)
    best = found[0][1][0].epochs
    assert 1 < best < 196
    assert max(epochs) == best + 4
    assert found[0][1] == found[1][1]
    assert torch.equal(found[0][0].below, found[1][0].below)


def test_all_penalties_are_tried_and_the_chosen_one_comes_first(clicks: Clicks) -> None:
    torch.manual_seed(0)
    settings = replace(QUICK, held_out=0.5, hidden=(0,), penalties=(0.1, 0.0, 0.1))
    observed, choices = learn_observation(clicks, settings)
    assert sorted(choice.penalty for choice in choices) == [0.0, 0.1, math.inf]
    assert all(1 <= choice.epochs <= 3 and choice.likelihood < 0 for choice in choices)
    assert (len(observed.chain) == 0) is (choices[0].penalty == math.inf)
    assert not list(observed.parameters())
    assert not observed.training
    assert not observed(features_of(clicks)).requires_grad
    assert [choice.penalty for choice in learn_observation(clicks, replace(settings, penalties=()))[1]] == [math.inf]


def test_a_small_log_gets_the_curve_alone(clicks: Clicks) -> None:
    observed, (choice,) = learn_observation(clicks.with_clicks().take(np.arange(15)), QUICK)
    assert (choice.penalty, choice.epochs) == (math.inf, 3)
    assert math.isnan(choice.likelihood)
    assert torch.equal(observed.steepness(features_of(clicks)), torch.ones(clicks.lists.documents))


def test_a_diverging_observation_raises_an_error(clicks: Clicks) -> None:
    huge = replace(clicks, lists=clicks.lists.with_features(clicks.lists.features * np.float32(1e25)))
    for settings in (QUICK, replace(QUICK, held_out=0.5)):
        with pytest.raises(TrainingError, match=r"observation of documents is not finite.*normalise"):
            learn_observation(huge, settings)


@pytest.mark.parametrize(
    ("field", "value", "must"),
    [
        ("hidden", (), "name at least one size"),
        ("hidden", (4, -1), "name at least one size"),
        ("hidden", (1.5,), "name at least one size, whole numbers"),
        ("companion", (), "name at least one size"),
        ("companion", (8.0,), "name at least one size"),
        ("penalties", (0.0, -1.0), "be at least 0"),
        ("penalties", (math.inf,), "be at least 0"),
        ("held_out", 1.0, "be between 0 and 1"),
        ("lists", 0, "be at least 1"),
        ("epochs", 0, "be at least 1"),
        ("patience", 0, "be at least 1"),
    ],
    ids=lambda value: str(value).replace(" ", ""),
)
def test_wrong_settings_of_the_observation_are_refused(field: str, value: Any, must: str) -> None:
    with pytest.raises(SettingError, match=f"{field} must {must}"):
        ObservationSettings(**{field: value})


def engine_log(*, bend: float, seed: int = 0) -> tuple[Clicks, np.ndarray[Any, Any]]:
    """Lists of an engine that knows relevance, which the features do not, and moves documents by a little noise.

    Users observe position k with probability k^-s, s = 1 + bend times the first feature. Return the log and the curve.
    """
    rng = np.random.default_rng(seed)
    queries, length, orders, sessions = 150, 5, 6, 40
    features = rng.choice([-1.0, 1.0], size=(queries * length, 2)).astype(np.float32)
    relevance = rng.uniform(0.1, 0.9, (queries, length))
    documents = np.arange(queries * length).reshape(queries, length)
    noisy = relevance[:, None] + rng.normal(0, 0.25, (queries, orders, length))
    shown = np.argsort(-noisy, axis=-1)
    rows = np.take_along_axis(documents[:, None], shown, axis=-1).reshape(-1)
    places = np.tile(np.arange(1, length + 1), queries * orders)
    observed = places ** -(1 + bend * features[rows, 0].astype(np.float64))
    counts = rng.binomial(sessions, np.minimum(observed, 1) * relevance.reshape(-1)[rows])
    lists = Lists(features, np.arange(0, queries * length + 1, length), np.arange(queries).astype(np.str_))
    offsets = np.arange(0, len(rows) + 1, length)
    log = Clicks(lists, offsets, rows, places.astype(np.int32), counts, np.full(len(offsets) - 1, sessions))
    return log, 1 / np.arange(1, length + 1)


def test_documents_at_several_positions_give_the_curve_if_the_engine_knows_more_than_the_features() -> None:
    """Dual learning takes relevance that falls with the position for observation; the anchor is right within .1."""
    log, truth = engine_log(bend=0.0)
    joint = fit(log, method=DualLearning(), ranker=Linear(), settings=FitSettings(epochs=40, threads=1)).observation
    learner = Decoupling().learner(Linear().build(2), log)
    assert learner.anchor is not None
    assert (learner.anchor.curve.numpy() - FLAT) / (1 - FLAT) == pytest.approx(truth, rel=0.1)
    assert joint is not None
    assert joint[-1] < 0.6 * truth[-1]
    assert torch.equal(learner.observed.below, learner.anchor.curve[1:].log())
    assert [choice.penalty for choice in learner.choices] == [math.inf]


def test_documents_are_in_the_observation_where_the_log_model_finds_coupling() -> None:
    log, _ = engine_log(bend=0.6)
    assert Anchor.of(log) is None
    torch.manual_seed(0)
    observed, choices = learn_observation(log, replace(QUICK, epochs=60))
    assert choices[0].penalty < math.inf
    high, low = observed.steepness(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])).tolist()
    assert high > low + 0.5  # 1.6 and .4 in truth


def test_without_documents_at_several_positions_there_is_no_anchor() -> None:
    log, _ = engine_log(bend=0.0)
    still = log.take(np.arange(0, len(log), 6))  # one order of each query
    assert Anchor.of(still) is None
    assert Anchor.of(log.weighted(np.ones(len(log.rows)))) is None
    assert Decoupling(replace(QUICK, anchor=False)).learner(Linear().build(2), log).anchor is None


def test_what_an_engine_that_reacts_to_clicks_knows_is_read_from_its_first_positions() -> None:
    """An engine without knowledge that moves clicked documents up later: its first lists show that it knew nothing."""
    rng = np.random.default_rng(0)
    queries, length, days, sessions = 200, 5, 10, 10
    features = rng.normal(size=(queries * length, 2)).astype(np.float32)
    relevance = rng.uniform(0.1, 0.9, queries * length)
    curve, rate = 1 / np.arange(1, length + 1), np.zeros(queries * length)  # rate: clicks so far
    rows, counts = [], []
    for day in range(days):
        score = rng.normal(size=(queries, length)) + 5 * rate.reshape(queries, length)
        shown = (np.argsort(-score, axis=1) + length * np.arange(queries)[:, None]).reshape(-1)
        drawn = rng.binomial(sessions, np.tile(curve, queries) * relevance[shown])
        rate[shown] += (drawn / sessions - rate[shown]) / (day + 1)
        rows.append(shown)
        counts.append(drawn)
    lists = Lists(features, np.arange(0, queries * length + 1, length), np.arange(queries).astype(np.str_))
    places = np.tile(np.arange(1, length + 1, dtype=np.int32), queries * days)
    shows = np.full(queries * days, sessions)
    log = Clicks(
        lists, np.arange(0, len(places) + 1, length), np.concatenate(rows), places, np.concatenate(counts), shows
    )
    backwards = log.take(np.arange(len(log))[::-1])  # as if the last day had been the first
    known = [Anchor.of(each) for each in (log, backwards)]
    assert known[0] is not None
    assert known[1] is not None
    assert float(known[0].rho) < 0.2
    assert float(known[1].rho) > 0.5
