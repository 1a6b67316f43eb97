"""The attention ranker: Eqs. 8-11 feature by feature, codes, extremes, export, and that it shows what it looks at."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from clickprism.errors import SettingError
from clickprism.model import Model
from clickprism.rankers.attention import CHUNK, Attention, AttentionNetwork, attention_map, grouped, sharing
from clickprism.rankers.base import Chained, Towered
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.types import Lists

TINY: dict[str, Any] = {"heads": 2, "width": 4, "units": 3, "pooled": 5, "hidden": (6, 4)}
CODED: dict[str, Any] = {**TINY, "categorical": (3, 1), "categories": (3, 2)}
FORMS = pytest.mark.parametrize("form", ["residual", "paper"])


def network_of(features: int, **settings: Any) -> AttentionNetwork:
    torch.manual_seed(0)
    network = Attention(**settings).build(features).double()
    assert isinstance(network, AttentionNetwork)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return network


def documents(count: int, features: int, codes: dict[int, int] | None = None) -> torch.Tensor:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(count, features))
    for column, size in (codes or {}).items():
        values[:, column] = rng.integers(0, size, count)
    return torch.from_numpy(values)


def elu(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x, torch.expm1(x))


def naive(network: AttentionNetwork, x: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """P of one document and its alpha, [heads, tokens, tokens], one feature and one head at a time."""
    settings, body, made = network.settings, network.body, network.body.tokens
    tokens, start = [], 0
    codes = dict(zip(settings.categorical, settings.categories, strict=True))
    starts = {}
    for column, size in codes.items():
        starts[column], start = start, start + size + 1
    size = max(len(group) for group in made.groups)
    for index, group in enumerate(made.groups):
        token = made.own[index, 0].clone()
        for place in range(size):
            if group[0] in codes:
                if place < len(group):
                    token += made.table[starts[group[place]] + int(x[group[place]])]
                continue
            value = x[group[place]] if place < len(group) else torch.zeros(())
            units = elu(made.slope[index, 0, place] * value + made.bias[index, 0, place])
            token += units @ made.mix[index].reshape(size, settings.units, -1)[place]
        tokens.append(token)
    paper, count = settings.form == "paper", len(tokens)
    wide = settings.width if paper else settings.width // settings.heads
    w_t, w_s, w_c = body.project.weight.reshape(3, settings.heads, wide, settings.width)
    alpha = torch.zeros(settings.heads, count, count, dtype=torch.float64)
    said = []
    for i in range(count):
        gathered = []
        for h in range(settings.heads):
            beta = torch.stack([(w_t[h] @ tokens[i]) @ (w_s[h] @ tokens[j]) for j in range(count)])
            alpha[h, i] = torch.exp(beta / temperature) / torch.exp(beta / temperature).sum()
            gathered.append(sum(alpha[h, i, j] * (w_c[h] @ tokens[j]) for j in range(count)))
        if paper:
            omega = torch.sigmoid(body.combine(torch.stack(gathered).mean(0)))
        else:
            omega = body.norm(tokens[i] + body.combine(torch.cat(gathered)))
        said.append(torch.tanh(body.pool.weight @ omega + body.pool.bias))
    if paper:
        return torch.stack([body.weigh.weight @ each for each in said]).mean(0), alpha
    weights = body.weigh.weight.reshape(body.pooled, count, settings.width).unbind(1)
    pooled = torch.stack([w @ each for w, each in zip(weights, said, strict=True)]).mean(0) + body.weigh.bias
    assert body.around is not None
    numbers = [column for column in range(len(x)) if column not in codes]
    return elu(pooled + body.around.weight @ x[numbers]), alpha


@FORMS
@pytest.mark.parametrize(
    "settings",
    [TINY, CODED, {**TINY, "tokens": 3}, {**CODED, "tokens": 3, "temperature": 0.7}],
    ids=["numbers", "codes", "shared tokens", "codes and shared tokens"],
)
def test_the_equations_feature_by_feature(form: str, settings: dict[str, Any]) -> None:
    network = network_of(7, form=form, **settings)
    x = documents(4, 7, dict(zip(settings.get("categorical", ()), settings.get("categories", ()), strict=True)))
    temperature = settings.get("temperature") or math.sqrt(4 if form == "paper" else 2)
    pooled, alpha = network.body(x), network.body.attention(x)
    for index, row in enumerate(x):
        p, a = naive(network, row, temperature)
        assert torch.allclose(pooled[index], p, atol=1e-12)
        assert torch.allclose(alpha[index], a, atol=1e-12)
    assert torch.allclose(network(x), network.layers(pooled)[:, 0], atol=1e-12)


def test_the_paper_pools_to_one_number() -> None:
    assert Attention(form="paper").build(5)(torch.zeros(2, 5)).shape == (2,)
    assert network_of(5, form="paper").body(documents(2, 5)).shape == (2, 1)


@FORMS
@pytest.mark.parametrize("tokens", [None, 2])
def test_gradients_by_finite_differences(form: str, tokens: int | None) -> None:
    network = network_of(4, form=form, width=2, units=2, pooled=2, hidden=(2,), heads=1, tokens=tokens)
    x = documents(2, 4).requires_grad_()
    parameters = dict(network.named_parameters())
    parameters = {name: value for name, value in parameters.items() if value.numel() > 0}

    def scores(features: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        named = dict(zip(parameters, values, strict=True))
        found: torch.Tensor = torch.func.functional_call(network, named, (features,))
        return found

    assert torch.autograd.gradcheck(scores, (x, *parameters.values()), atol=1e-6)


@FORMS
def test_codes_that_are_none_share_one_row(form: str) -> None:
    network = network_of(5, form=form, **CODED)
    x = documents(1, 5, {3: 3, 1: 2}).repeat(9, 1)
    x[:, 3] = torch.tensor([3.0, -1.0, 1e30, 0.5, math.nan, math.inf, -math.inf, 0.0, 2.0])
    scores = network(x)
    assert torch.isfinite(scores).all()
    assert (scores[:7] == scores[0]).all()
    assert len(set(scores[[0, 7, 8]].tolist())) == 3
    torch.autograd.backward(scores.sum())
    for parameter in network.parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all()


def test_documents_of_codes_alone_can_be_scored() -> None:
    network = network_of(2, **{**TINY, "categorical": (0, 1), "categories": (2, 2)})
    scores = network(torch.tensor([[0.0, 1.0], [1.0, 0.0], [5.0, 5.0]], dtype=torch.float64))
    assert len(set(scores.tolist())) == 3


@FORMS
def test_documents_are_scored_one_by_one_in_any_shape_and_number(form: str) -> None:
    network = network_of(5, form=form, **TINY)
    x = documents(2 * CHUNK + 6, 5)
    scores = network(x)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(network(x[order]), scores[order], atol=1e-12)
    assert torch.allclose(network(x.reshape(2, -1, 5)), scores.reshape(2, -1), atol=1e-12)
    assert torch.allclose(network(x[:1]), scores[:1], atol=1e-12)
    assert network(x[:0]).shape == (0,)


@FORMS
@pytest.mark.parametrize("fill", [0.0, 1.0, 1e6, -1e6])
def test_constant_and_huge_features_stay_finite(form: str, fill: float) -> None:
    torch.manual_seed(0)
    network = Attention(form=form).build(6)  # type: ignore[arg-type]
    x = torch.full((3, 6), fill)
    x[1, 2] = 1e6
    scores = network(x)
    torch.autograd.backward((scores * torch.tensor([1.0, -1.0, 2.0])).sum())
    assert torch.isfinite(scores).all()
    for parameter in network.parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all()


@FORMS
def test_export_with_any_number_of_documents(form: str) -> None:
    torch.manual_seed(0)
    network = Attention(form=form, **CODED).build(5).eval()  # type: ignore[arg-type]
    x = documents(40, 5, {3: 4, 1: 3}).float()
    exported = torch.export.export(network, (x[:8],), dynamic_shapes=({0: torch.export.Dim("documents")},))
    for count in (2, 8, 40):
        assert torch.allclose(exported.module()(x[:count]), network(x[:count]), atol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [Attention(**CODED), Attention(form="paper", tokens=2), Attention(form="paper", context=2, norm="batch")],
    ids=["codes", "paper", "context"],
)
def test_a_saved_model_scores_the_same(settings: Attention, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Model(settings, settings.build(5), features=5, method={"name": "click"})
    x = documents(50, 5, {3: 4, 1: 3}).float().numpy()
    lists = Lists(x, np.array([0, 20, 50]), np.array(["a", "b"]))
    model.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    assert loaded.ranker == settings
    assert np.array_equal(loaded.score(lists), model.score(lists))


@pytest.mark.parametrize("ranker", [Linear(), MLP(hidden=(6, 4)), Attention(**TINY)], ids=lambda each: each.name)
def test_a_network_is_a_trunk_and_a_head_and_a_fresh_copy_shares_nothing(ranker: Any) -> None:
    torch.manual_seed(0)
    network = ranker.build(5)
    assert isinstance(network, Towered)
    assert isinstance(network, Chained) is (ranker.name != "attention")
    x = documents(3, 5).float()
    hidden = network.trunk()(x)
    assert hidden.shape == (3, network.width)
    assert torch.equal(network.last()(hidden)[:, 0], network(x))  # type: ignore[operator]
    other = network.new_like(2)
    assert other(x).shape == (3, 2)
    assert isinstance(other[-1], nn.Linear)
    assert not {id(p) for p in other.parameters()} & {id(p) for p in network.parameters()}  # type: ignore[attr-defined]


def test_the_map_is_a_mean_over_documents_and_heads() -> None:
    network = network_of(5, **{**TINY, "tokens": 3})
    x = documents(CHUNK + 3, 5)
    shown = attention_map(network, x)
    assert shown.shape == (5, 5)
    assert torch.allclose(shown.sum(1), torch.ones(5, dtype=torch.float64))
    by_token = network.body.attention(x).mean((0, 1))
    assert network.body.tokens.groups == [(0, 1), (2, 3), (4,)]
    assert torch.allclose(shown[0, 2], by_token[0, 1] / 2)
    assert torch.allclose(shown[4, 4], by_token[2, 2])
    with pytest.raises(SettingError, match="ranker must be attention to show it, got 'Linear'"):
        attention_map(nn.Linear(2, 1), x)


def test_many_features_share_tokens() -> None:
    groups = network_of(700).body.tokens.groups
    assert len(groups) == 64
    assert {len(group) for group in groups} == {11, 7}
    assert len(network_of(46).body.tokens.groups) == 46


@pytest.mark.parametrize("tokens", [2, 3, 5, 64])
@pytest.mark.parametrize("codes", [0, 1, 2, 7, 9])
def test_there_are_never_more_tokens_than_asked_for_nor_fewer_than_fit(tokens: int, codes: int) -> None:
    for features in (max(codes, 1), 9, 64, 65, 128, 129):
        size = sharing(features - codes, codes, tokens)

        def count(size: int, kinds: tuple[int, int] = (features - codes, codes)) -> int:
            return sum(len(grouped(range(kind), size)) for kind in kinds)

        assert count(size) <= tokens
        assert size == 1 or count(size - 1) > tokens
        if not codes:
            assert size == math.ceil(features / tokens)


def test_codes_count_among_the_tokens() -> None:
    network = network_of(128, categorical=(5,), categories=(3,))
    assert len(network.body.tokens.groups) == 44  # 127 numbers by 3, and the codes; by 2 they would be 65
    assert network(documents(2, 128, {5: 3})).shape == (2,)
    with pytest.raises(SettingError, match="tokens must be at least 2 where some columns are categorical"):
        network_of(4, tokens=1, categorical=(1,), categories=(3,))
    assert network_of(2, tokens=1, categorical=(0, 1), categories=(3, 2)).body.tokens.groups == [(0, 1)]
    with pytest.raises(SettingError, match="features must be at least 1: attention compares features, got 0"):
        Attention().build(0)


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("form", {"form": "other"}),
        ("heads", {"heads": 0}),
        ("width", {"heads": 3}),
        ("units", {"units": 0}),
        ("pooled", {"pooled": 0}),
        ("tokens", {"tokens": 0}),
        ("temperature", {"temperature": 0.0}),
        ("temperature", {"temperature": math.nan}),
        ("hidden", {"hidden": ()}),
        ("categorical", {"categorical": (1, 1), "categories": (2, 2)}),
        ("categorical", {"categorical": (-1,), "categories": (2,)}),
        ("categories", {"categorical": (1,)}),
        ("categories", {"categorical": (1,), "categories": (0,)}),
    ],
)
def test_settings_are_checked(field: str, settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=f"{field} must"):
        Attention(**settings)


def test_columns_must_be_there() -> None:
    with pytest.raises(SettingError, match="categorical must name columns of the data, which has 0 to 4"):
        Attention(categorical=(5,), categories=(2,)).build(5)
