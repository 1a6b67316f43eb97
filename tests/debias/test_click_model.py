"""Neural click models: likelihoods against enumeration and the users' own, and what follows from them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest
import torch

from clickprism.click_models.cascade import CascadeUser
from clickprism.click_models.ccm import ClickChainUser
from clickprism.click_models.dbn import BayesianUser
from clickprism.click_models.pbm import PositionUser
from clickprism.click_models.ubm import BrowsingUser
from clickprism.click_models.users import Shown, User
from clickprism.debias.click_model import (
    CERTAIN,
    Browsing,
    ByLastClick,
    ByPosition,
    Chain,
    ModelName,
    NeuralClickModel,
    Page,
    fresh_copy,
)
from clickprism.debias.loop import pad
from clickprism.debias.losses import log_both, log_click
from clickprism.errors import DataError, SettingError
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.types import Clicks, Float64, Lists
from tests.click_models.likelihood import log_likelihood_of

MODELS = get_args(ModelName)
ATTRACTION = np.array([0.3, 0.8, 0.2, 0.6, 0.5])
SATISFACTION = np.array([0.4, 0.6, 0.1, 0.9, 0.5])
PATTERNS = np.array(list(product([False, True], repeat=5)))


def logit(values: Any) -> torch.Tensor:
    """The log odds of probabilities, those of 1 finite."""
    values = torch.as_tensor(np.asarray(values), dtype=torch.float64)
    return torch.logit(values).clamp(-CERTAIN, CERTAIN)


def page_of(
    attraction: Float64 = ATTRACTION, satisfaction: Float64 = SATISFACTION, *, positions: list[int] | None = None
) -> Page:
    """One list."""
    size = len(attraction)
    places = torch.tensor([positions or list(range(1, size + 1))])
    return Page(torch.ones(1, size, dtype=torch.bool), places, logit(attraction)[None], logit(satisfaction)[None])


def repeat(page: Page, times: int) -> Page:
    return Page(*(each.expand(times, -1) for each in vars(page).values()))


def browsing_of(model: str, positions: int = 5) -> Browsing:
    """A browsing model with parameters that are all different."""
    if model == "pbm":
        made: Browsing = ByPosition(positions)
        values: Any = np.linspace(0.9, 0.2, positions)
    elif model == "ubm":
        made, values = ByLastClick(positions), np.linspace(0.9, 0.1, positions**2).reshape(positions, positions)
    else:
        made = Chain(model, positions)  # type: ignore[arg-type]
        values = {"dcm": np.linspace(0.8, 0.3, positions), "ccm": [0.7, 0.5, 0.2], "dbn": [0.85]}.get(model, [])
    made.odds = torch.nn.Parameter(logit(values))
    return made


def log_likelihood(model: Browsing, page: Page, patterns: Any = PATTERNS) -> Float64:
    """Log P of each pattern on the one list of the page."""
    clicked, page = torch.as_tensor(patterns), repeat(page, len(patterns))
    with torch.no_grad():
        yes, no = log_click(page.attraction, *log_both(model(page, clicked)))
        return np.asarray(torch.where(clicked, yes, no).sum(-1).numpy())


def stopping(model: str, attraction: Float64, satisfaction: Float64, odds: Float64) -> tuple[Float64, Float64]:
    """The probabilities to go on after a skip and after a click, by hand."""
    one = np.ones(len(attraction))
    if model == "cascade":
        return one, 0 * one
    if model == "dcm":
        return one, odds
    if model == "ccm":
        return odds[0] * one, odds[1] * (1 - attraction) + odds[2] * attraction
    if model == "dbn":
        return odds[0] * one, odds[0] * (1 - satisfaction)
    return one, 1 - satisfaction


def enumerated(model: str, odds: Float64) -> dict[tuple[bool, ...], float]:
    """The probability of each pattern, summed over the last place that is seen."""
    skip, go = stopping(model, ATTRACTION, SATISFACTION, odds)
    result = {}
    for pattern in product([False, True], repeat=5):
        total = 0.0
        for last in range(5):
            if any(pattern[last + 1 :]):
                continue
            weight = 1.0
            for place in range(last + 1):
                weight *= ATTRACTION[place] if pattern[place] else 1 - ATTRACTION[place]
                on = go[place] if pattern[place] else skip[place]
                weight *= on if place < last else 1 - on if last < 4 else 1.0
            total += weight
        result[pattern] = total
    return result


@pytest.mark.parametrize("model", ["cascade", "dcm", "ccm", "dbn", "sdbn"])
def test_chains_against_enumeration_of_where_the_user_stops(model: str) -> None:
    browsing = browsing_of(model)
    expected = enumerated(model, torch.sigmoid(browsing.odds).detach().numpy())
    assert sum(expected.values()) == pytest.approx(1)
    found = np.exp(log_likelihood(browsing, page_of()))
    assert found == pytest.approx([expected[tuple(pattern)] for pattern in PATTERNS.tolist()], rel=1e-12, abs=1e-15)


def test_last_clicks_by_hand() -> None:
    """The third click follows that at 1, the skipped second one too; the fifth has its last click at 3."""
    browsing = browsing_of("ubm")
    o = torch.sigmoid(browsing.odds).detach().numpy()
    a = ATTRACTION
    terms = [a[0], 1 - o[1, 1] * a[1], o[2, 1] * a[2], 1 - o[3, 3] * a[3], o[4, 3] * a[4]]
    found = log_likelihood(browsing, page_of(), np.array([[True, False, True, False, True]]))
    assert np.exp(found) == pytest.approx(np.prod(terms))


@pytest.mark.parametrize("model", MODELS)
def test_patterns_add_up_to_one_and_to_the_marginals(model: str) -> None:
    browsing, page = browsing_of(model), page_of()
    chance = np.exp(log_likelihood(browsing, page))
    assert chance.sum() == pytest.approx(1, rel=1e-12)
    with torch.no_grad():
        seen = browsing.marginal(page).exp().numpy()[0]
    assert chance @ PATTERNS == pytest.approx(ATTRACTION * seen, rel=1e-12)


def users() -> list[tuple[User, Browsing]]:
    """Simulated users and the browsing models that they are."""
    table = BrowsingUser().table
    square = np.array([[table[k][k - last] if 1 <= last <= k else table[k][k] for last in range(5)] for k in range(5)])
    made: list[tuple[User, str, Any]] = [
        (PositionUser(curve=(1.0, 0.61, 0.48, 0.34, 0.28)), "pbm", [1.0, 0.61, 0.48, 0.34, 0.28]),
        (BrowsingUser(), "ubm", square),
        (CascadeUser(), "cascade", []),
        (ClickChainUser.informational(), "ccm", [0.5, 0.40, 0.27]),
        (BayesianUser(satisfaction=0.7), "dbn", [0.9]),
        (BayesianUser(perseverance=1.0, satisfaction=0.7), "sdbn", []),
    ]
    result: list[tuple[User, Browsing]] = []
    for user, model, values in made:
        browsing = browsing_of(model)
        browsing.odds = torch.nn.Parameter(logit(values))
        result.append((user, browsing))
    return result


@pytest.mark.parametrize("case", range(6))
def test_likelihood_is_that_of_the_simulated_user(case: int) -> None:
    user, browsing = users()[case]
    lists = Lists(np.zeros((5, 1), np.float32), np.array([0, 5]), np.array(["q"]))
    count = len(PATTERNS)
    attraction = ATTRACTION.astype(np.float32)
    shown = Shown(lists, np.arange(count + 1) * 5, np.tile(np.arange(5), count), np.tile(attraction, count))
    expected = log_likelihood_of(user, shown, PATTERNS.ravel())
    page = page_of(attraction.astype(np.float64), 0.7 * attraction.astype(np.float64))
    found = log_likelihood(browsing, page)
    possible = np.isfinite(expected)
    assert found[possible] == pytest.approx(expected[possible], rel=1e-6)
    assert (found[~possible] < -1e20).all()


def test_what_the_log_leaves_out_is_no_step_of_a_chain_but_keeps_positions() -> None:
    gaps = page_of(positions=[1, 2, 5, 6, 9])
    assert log_likelihood(browsing_of("dbn"), gaps) == pytest.approx(log_likelihood(browsing_of("dbn"), page_of()))
    wide, seen = browsing_of("pbm", 9), 4
    with torch.no_grad():
        odds = wide(gaps, gaps.mask)[0]
    assert odds[1:].tolist() == wide.odds[[1, seen, 5, 8]].tolist()


@pytest.fixture
def patterns(clicks: Clicks) -> Clicks:
    """The common log, each list with what was clicked in most sessions."""
    share = clicks.clicks / clicks.list_impressions
    return replace(clicks, clicks=np.where(share > 0.3, clicks.list_impressions, 0))


def method_of(model: str, **settings: Any) -> NeuralClickModel:
    return NeuralClickModel(model=model, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", [method_of(model) for model in MODELS], ids=str)
def test_every_model_is_sound(method: NeuralClickModel, patterns: Clicks) -> None:
    """Masked places change nothing, huge scores and no clicks are finite, finite differences agree."""
    torch.manual_seed(0)
    learner = method.learner(MLP(hidden=(6,)).build(5), patterns)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    batch = pad(patterns, np.arange(12))
    noisy = replace(
        batch,
        features=torch.where(batch.mask[..., None], batch.features, 1e6),
        positions=torch.where(batch.mask, batch.positions, 7),
    )
    assert learner.loss(noisy)["clicks"].item() == learner.loss(batch)["clicks"].item()
    for hard in (replace(batch, features=batch.features * 1e4), replace(batch, clicks=batch.clicks * 0)):
        learner.zero_grad()
        torch.autograd.backward(learner.loss(hard)["clicks"])
        for parameter in learner.parameters():
            assert parameter.grad is None or torch.isfinite(parameter.grad).all()
    probability = learner.conditional_probability(patterns)
    logits = learner.click_logits(pad(patterns, np.arange(len(patterns)))).detach()
    marginal = learner.click_probability(patterns)
    mask = pad(patterns, np.arange(len(patterns))).mask
    assert marginal == pytest.approx(logits.exp()[mask].numpy(), rel=1e-4, abs=1e-7)
    first = patterns.positions == 1
    assert probability[first] == pytest.approx(marginal[first])
    assert learner.exposure(patterns)[first] == pytest.approx(patterns.impressions)

    learner = learner.double()
    exact = replace(batch, **{name: getattr(batch, name).double() for name in ("features", "clicks", "impressions")})
    parameters = list(learner.parameters())
    grads: list[torch.Tensor | None] = list(
        torch.autograd.grad(learner.loss(exact)["clicks"], parameters, allow_unused=True)
    )
    directions = [torch.randn(p.shape, dtype=p.dtype) for p in parameters]
    values = []
    for sign in (1, -2):
        with torch.no_grad():
            for parameter, direction in zip(parameters, directions, strict=True):
                parameter.add_(sign * 1e-6 * direction)
            values.append(learner.loss(exact)["clicks"].item())
    slope = sum(0.0 if g is None else float((g * d).sum()) for g, d in zip(grads, directions, strict=True))
    assert (values[0] - values[1]) / 2e-6 == pytest.approx(slope, rel=1e-4, abs=1e-7)


def test_the_loss_is_the_likelihood_per_session(patterns: Clicks) -> None:
    from clickprism.evaluation.clicks import log_likelihood as per_session

    learner = method_of("dbn").learner(MLP(hidden=(6,)).build(5), patterns)
    loss = learner.loss(pad(patterns, np.arange(len(patterns)), scale=20.0))["clicks"].item()
    assert loss == pytest.approx(-per_session(learner.conditional_probability(patterns), patterns), rel=1e-5)


def test_cascade_takes_a_session_down_to_its_first_click() -> None:
    lists = Lists(np.zeros((3, 1), np.float32), np.array([0, 3]), np.array(["q"]))
    places = np.arange(1, 4, dtype=np.int32)
    one, two = (
        Clicks(lists, np.array([0, 3]), np.arange(3), places, np.array(clicks), np.array([1]))
        for clicks in ([0, 1, 0], [0, 1, 1])
    )
    learner = method_of("cascade").learner(Linear().build(1), one)
    losses = [learner.loss(pad(log, np.arange(1)))["clicks"].item() for log in (one, two)]
    chance = 1 / (1 + np.exp(-learner.odds))
    assert losses == pytest.approx([-np.log(chance * (1 - chance))] * 2, rel=1e-5)


def test_merged_logs_forget_the_clicks_above(clicks: Clicks) -> None:
    learner = method_of("ubm").learner(Linear().build(5), clicks)
    with pytest.raises(DataError, match="a merged log does not record which clicks were above"):
        learner.conditional_probability(clicks)
    assert learner.click_probability(clicks).shape == clicks.rows.shape


def test_a_fresh_copy_has_the_shape_and_other_weights() -> None:
    torch.manual_seed(0)
    network = MLP(hidden=(4,)).build(3)
    copied = fresh_copy(network)
    for one, other in zip(network.parameters(), copied.parameters(), strict=True):
        assert one.shape == other.shape
        assert one.data_ptr() != other.data_ptr()
    assert not torch.equal(network(torch.ones(3)), copied(torch.ones(3)))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"model": "pmb"}, "model must be one of pbm, ubm, cascade, dcm, ccm, dbn, sdbn, got 'pmb'"),
        ({"observation_rate": 0.0}, r"observation_rate must be above 0, got 0\.0"),
        ({"observation_rate": float("nan")}, "observation_rate must be above 0, got nan"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingError, match=text):
        NeuralClickModel(**settings)
