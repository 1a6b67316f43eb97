"""The gradient penalty: every exact form is the reference, sampled ones are unbiased, and hand arithmetic holds."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from itertools import product
from typing import Any, Final, Literal, get_args

import pytest
import torch
from torch import Tensor, nn

from clickprism.debias.jacobian import last_layer
from clickprism.debias.penalty import Form, penalised
from clickprism.errors import SettingError
from clickprism.rankers.attention import Attention
from clickprism.rankers.base import Towered
from clickprism.rankers.linear import LinearNetwork
from clickprism.rankers.mlp import ACTIVATIONS, MLP, MLPNetwork

FORMS: Final[tuple[Form, ...]] = get_args(Form)
Slope = Callable[[Tensor], Tensor]


def log_sigmoid_slope(z: Tensor) -> Tensor:
    return torch.sigmoid(-z)


def network(
    features: int,
    outputs: int,
    *,
    hidden: tuple[int, ...] = (8, 6),
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    activation: str = "elu",
    layer_norm: str = "hidden",
    dropout: float = 0.0,
) -> nn.Sequential:
    """A chain whose weights, biases and norms are all moved away from where they begin."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = {"activation": activation, "layer_norm": layer_norm, "dropout": dropout}
    chain = MLPNetwork(MLP(hidden=hidden, **shape), features).anew(outputs).to(dtype)
    with torch.no_grad():
        for parameter in chain.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return chain


def flat_gradient(
    chain: nn.Sequential, features: Tensor, *, fit: float = 1.0, **settings: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """z, the penalty, and the gradient of (the penalty + fit * a loss of z) with respect to all parameters."""
    chain.zero_grad()
    z, penalty = penalised(chain, features, **settings)
    (penalty + fit * z.pow(3).sum() / len(features)).backward()  # type: ignore[no-untyped-call]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in chain.parameters()]
    return z.detach(), penalty.detach(), torch.cat([gradient.flatten() for gradient in gradients])


def assert_same(chain: nn.Sequential, features: Tensor, *, rtol: float = 1e-5, **settings: Any) -> None:
    """The chain form is the reference: in z, in value, and in the gradient of each parameter, to its largest entry."""
    torch.manual_seed(1)
    expected = flat_gradient(chain, features, form="autograd", **settings)
    torch.manual_seed(1)
    found = flat_gradient(chain, features, form="chain", **settings)
    torch.testing.assert_close(found[:2], expected[:2], rtol=rtol, atol=rtol * 1e-3)
    sizes = [parameter.numel() for parameter in chain.parameters()]
    for mine, reference in zip(torch.split(found[2], sizes), torch.split(expected[2], sizes), strict=True):
        torch.testing.assert_close(mine, reference, rtol=rtol, atol=rtol * float(reference.abs().max()) + 1e-12)


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("layer_norm", ["hidden", "all", "none"])
def test_the_closed_form_is_the_reference(activation: str, layer_norm: str) -> None:
    """Narrow and wide (Gram) features, one document or several, one output or several, both powers, slope or none."""
    slopes: tuple[Slope | None, ...] = (None, log_sigmoid_slope)
    for features, outputs, documents, power, slope in product((3, 40), (1, 4), (1, 9), (1, 2), slopes):
        chain = network(features, outputs, activation=activation, layer_norm=layer_norm)
        x = torch.randn(documents, features, dtype=torch.float64)
        assert_same(chain, x, power=power, slope=slope, rtol=1e-8)


@pytest.mark.parametrize("features", [5, 300])
@pytest.mark.parametrize("power", [1, 2])
def test_the_closed_form_is_the_reference_in_single_precision(features: int, power: int) -> None:
    chain = network(features, 10, hidden=(64, 32), dtype=torch.float32)
    assert_same(chain, torch.randn(50, features), power=power, slope=log_sigmoid_slope)


def test_layers_of_other_kinds_are_the_reference_too() -> None:
    """No biases, norms without weights, ELU of another scale, linear layers in a row, dropout that is off."""
    x = torch.randn(6, 5, dtype=torch.float64)
    for chain in (
        nn.Sequential(nn.Linear(5, 4, bias=False), nn.ELU(0.5), nn.LayerNorm(4, bias=False), nn.Linear(4, 3)),
        nn.Sequential(nn.LayerNorm(5, elementwise_affine=False), nn.Tanh(), nn.Linear(5, 4), nn.Linear(4, 3)),
        nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 3, bias=False)).eval(),
        nn.Sequential(nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 3)),
    ):
        for power in (1, 2):
            assert_same(chain.double(), x, power=power, slope=log_sigmoid_slope, rtol=1e-8)


def test_dropout_is_the_same_for_outputs_and_penalty() -> None:
    """A finite difference of the outputs under the mask that the seed draws gives the penalty."""
    chain = network(3, 2, dropout=0.5)
    x = torch.randn(4, 3, dtype=torch.float64)
    step = 1e-6 * torch.eye(3, dtype=torch.float64)

    def outputs(at: Tensor) -> Tensor:
        torch.manual_seed(7)
        return penalised(chain, at, form="chain")[0].detach()

    jacobian = torch.stack([(outputs(x + each) - outputs(x - each)) / 2e-6 for each in step])
    torch.manual_seed(7)
    _, penalty = penalised(chain, x, form="chain")
    assert penalty.item() == pytest.approx(jacobian.square().sum(0).mean().item(), rel=1e-6)
    assert not torch.equal(outputs(x), chain.eval()(x).detach())
    assert_same(chain, x)


def test_a_finite_difference_of_every_weight_gives_the_gradient() -> None:
    chain = network(2, 2, hidden=(3,))
    x = torch.randn(2, 2, dtype=torch.float64)
    settings: dict[str, Any] = {"form": "chain", "power": 1, "slope": log_sigmoid_slope}
    _, _, gradient = flat_gradient(chain, x, fit=0.0, **settings)
    differences = []
    with torch.no_grad():
        for parameter in chain.parameters():
            for entry in parameter.view(-1):
                values = []
                for move in (1e-6, -2e-6):
                    entry.add_(move)
                    values.append(penalised(chain, x, **settings)[1].item())
                entry.add_(1e-6)
                differences.append((values[0] - values[1]) / 2e-6)
    assert gradient.tolist() == pytest.approx(differences, rel=1e-5, abs=1e-8)


def test_one_hidden_unit_by_hand() -> None:
    """z = 2 tanh(3 x1 + 4 x2): at 0 the gradient is (6, 8), norm 10; o = sigmoid(z) has slope 1/4 there."""
    chain = nn.Sequential(nn.Linear(2, 1), nn.Tanh(), nn.Linear(1, 1))
    with torch.no_grad():
        for parameter, value in zip(chain.parameters(), ([[3.0, 4.0]], [0.0], [[2.0]], [0.0]), strict=True):
            parameter.copy_(torch.tensor(value))
    at = torch.zeros(1, 2)
    for form in FORMS:
        assert penalised(chain, at, form=form)[1].item() == pytest.approx(100.0)
        of_o = penalised(chain, at, form=form, slope=lambda z: torch.sigmoid(z) * torch.sigmoid(-z))[1]
        assert of_o.item() == pytest.approx(6.25)
    for form in FORMS[:3]:
        assert penalised(chain, at, form=form, power=1)[1].item() == pytest.approx(10.0)


@pytest.mark.parametrize("form", FORMS)
def test_outputs_are_those_of_the_chain(form: Form) -> None:
    chain = network(5, 3, layer_norm="all")
    x = torch.randn(11, 5, dtype=torch.float64)
    for share in (0.3, 1.0):
        z, _ = penalised(chain, x, form=form, share=share)
        torch.testing.assert_close(z, chain(x))


@pytest.mark.parametrize(
    ("form", "share", "power"),
    [("output", 1.0, 2), ("output", 0.3, 1), ("projection", 1.0, 2), ("projection", 0.3, 2), ("chain", 0.3, 1)],
)
def test_samples_are_unbiased(form: Form, share: float, power: Literal[1, 2]) -> None:
    """The mean of 400 draws, in value and in each entry of the gradient, is within 4.5 standard errors of the exact.

    There are about 90 entries: by chance one in a thousand such tests would fail; the seed is fixed.
    """
    chain, x = network(3, 4, hidden=(5, 4), activation="tanh"), torch.randn(7, 3, dtype=torch.float64)
    common: dict[str, Any] = {"power": power, "slope": log_sigmoid_slope, "fit": 0.0}
    _, value, gradient = flat_gradient(chain, x, form="chain", **common)
    exact = torch.cat([value[None], gradient])
    draws = []
    for _ in range(400):
        _, value, gradient = flat_gradient(chain, x, form=form, share=share, **common)
        draws.append(torch.cat([value[None], gradient]))
    found = torch.stack(draws)
    error = found.std(0) / math.sqrt(len(found))
    assert ((found.mean(0) - exact).abs() <= 4.5 * error + 1e-12).all()
    assert found[:, 0].std() > 0


@pytest.mark.parametrize("form", FORMS)
def test_slopes_may_have_parameters_of_their_own(form: Form) -> None:
    """o = sigmoid(z + b): one output, so that no form draws; the penalty alone goes back, without z."""
    torch.manual_seed(0)
    chain, x = network(3, 1), torch.randn(5, 3, dtype=torch.float64)
    shift = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    found = []
    for each in ("autograd", form):
        _, penalty = penalised(chain, x, form=each, slope=lambda z: log_sigmoid_slope(z + shift))
        found.append(
            torch.cat([g.flatten() for g in torch.autograd.grad(penalty, [shift, *list(chain.parameters())[:-1]])])
        )
    torch.testing.assert_close(found[1], found[0])
    assert found[0][0] != 0


def test_one_output_a_document_is_drawn_evenly() -> None:
    """Outputs with constant gradients k: of 8 documents each of the 4 outputs gets 2, so the penalty has no noise."""
    chain = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 4, bias=False))
    with torch.no_grad():
        for parameter, value in zip(chain.parameters(), ([[1.0]], [[1.0], [2.0], [3.0], [4.0]]), strict=True):
            parameter.copy_(torch.tensor(value))
    found = [penalised(chain, torch.zeros(8, 1), form="output")[1].item() for _ in range(5)]
    assert found == pytest.approx([7.5] * 5)
    single = {penalised(chain, torch.zeros(1, 1), form="output")[1].item() for _ in range(60)}
    assert single == {1.0, 4.0, 9.0, 16.0}


@pytest.mark.parametrize("form", ["output", "projection"])
def test_a_seed_decides_the_draws(form: Form) -> None:
    chain, x = network(4, 5), torch.randn(20, 4, dtype=torch.float64)

    def value(generator: torch.Generator | None) -> float:
        return penalised(chain, x, form=form, share=0.5, generator=generator)[1].item()

    given = [value(torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    value(torch.Generator())
    assert torch.equal(before, torch.random.get_rng_state())
    first = value(None)
    torch.manual_seed(0)
    assert first == value(None)
    assert given[0] == given[1] != given[2]


@pytest.mark.parametrize("form", FORMS)
def test_no_documents_cost_nothing(form: Form) -> None:
    chain = network(3, 2)
    z, penalty = penalised(chain, torch.zeros(0, 3, dtype=torch.float64), form=form, slope=log_sigmoid_slope)
    penalty.backward()  # type: ignore[no-untyped-call]
    assert (z.shape, penalty.item()) == ((0, 2), 0.0)
    assert all(p.grad is None or not p.grad.any() for p in chain.parameters())


@pytest.mark.parametrize(("form", "power"), [*product(FORMS[:3], (1, 2)), ("projection", 2)])
def test_a_constant_observation_has_finite_gradients(form: Form, power: Literal[1, 2]) -> None:
    """All weights 0, as the linear ranker begins and as a strong penalty ends."""
    for chain in (LinearNetwork(3).anew(4), network(3, 4, dtype=torch.float32)):
        with torch.no_grad():
            last_layer(chain).weight.zero_()
        *_, gradient = flat_gradient(chain, torch.randn(5, 3), form=form, power=power)
        assert gradient.isfinite().all()


def test_a_linear_chain_is_exact_in_every_form() -> None:
    """The gradient is W_k for every document, so that nothing need be drawn; slopes are taken of all documents."""
    chain = nn.Sequential(nn.Linear(6, 3).double())
    x = torch.randn(9, 6, dtype=torch.float64)
    rows = last_layer(chain).weight.square().sum(-1)
    for form in FORMS:
        plain = penalised(chain, x, form=form, share=0.2)[1].item()
        sloped = penalised(chain, x, form=form, share=0.2, slope=log_sigmoid_slope)[1].item()
        assert plain == pytest.approx(rows.mean().item())
        assert sloped == pytest.approx((rows * log_sigmoid_slope(chain(x)).square()).mean().item())


@pytest.mark.parametrize("form", ["chain", "output", "projection"])
@pytest.mark.parametrize("slope", [None, log_sigmoid_slope], ids=["plain", "sloped"])
def test_autograd_gives_what_the_walk_by_hand_gives(form: Form, slope: Slope | None) -> None:
    chain, x = network(5, 3), torch.randn(7, 5, dtype=torch.float64)
    both = []
    for by_hand in (True, False):
        torch.manual_seed(1)
        both.append(flat_gradient(chain, x, form=form, slope=slope, share=0.6, by_hand=by_hand))
    torch.testing.assert_close(both[0], both[1])


def test_a_network_that_cannot_be_walked_is_penalised_by_autograd() -> None:
    torch.manual_seed(0)
    built = Attention(width=2, units=2, heads=1, pooled=3, hidden=(3,)).build(4)
    assert isinstance(built, Towered)
    chain, x = built.anew(2).double(), torch.randn(6, 4, dtype=torch.float64)
    steps = 1e-6 * torch.eye(4, dtype=torch.float64)
    with torch.no_grad():
        jacobian = torch.stack([(chain(x + step) - chain(x - step)) / 2e-6 for step in steps], -1)
    exact = jacobian.square().sum(-1).mean()
    assert penalised(chain, x, form="chain", by_hand=False)[1].item() == pytest.approx(exact.item(), rel=1e-6)
    drawn = torch.stack([penalised(chain, x, form="output", by_hand=False)[1].detach() for _ in range(300)])
    error = float(drawn.std()) / math.sqrt(len(drawn))
    assert drawn.mean().item() == pytest.approx(exact.item(), abs=4 * error)


def test_settings_that_cannot_work() -> None:
    chain, x = network(3, 2), torch.zeros(2, 3, dtype=torch.float64)
    for settings, message in (
        ({"form": "exact"}, "form must be one of autograd, chain, output, projection, got 'exact'"),
        ({"power": 3}, "power must be 1 or 2, got 3"),
        ({"form": "projection", "power": 1}, "power must be 2 for the form projection"),
        ({"share": 0.0}, "share must be above 0 and at most 1, got 0.0"),
        ({"share": float("nan")}, "share must be above 0"),
    ):
        with pytest.raises(SettingError, match=message):
            penalised(chain, x, **settings)
    strange = nn.Sequential(nn.Linear(3, 3), nn.Softsign(), nn.Linear(3, 2)).double()
    with pytest.raises(SettingError, match=r"form must be autograd for a chain with Softsign"):
        penalised(strange, x, form="chain")
    assert penalised(strange, x, form="autograd")[1].item() > 0


def test_backward_twice_is_refused_and_a_kept_graph_gives_the_same() -> None:
    chain, x = network(3, 2), torch.randn(4, 3, dtype=torch.float64)
    z, penalty = penalised(chain, x, form="chain")
    loss = penalty + z.sum()
    parameters = list(chain.parameters())
    once = torch.autograd.grad(loss, parameters, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss, parameters), once)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, parameters)


@pytest.mark.parametrize("form", FORMS[1:])
def test_what_a_step_leaves_is_freed_without_the_collector(form: Form) -> None:
    """Even if nothing goes back: a graph that held itself would keep the activations of every batch."""
    chain, x = network(3, 2), torch.randn(4, 3, dtype=torch.float64)
    gc.collect()
    gc.disable()
    try:
        z, penalty = penalised(chain, x, form=form, slope=log_sigmoid_slope)
        node = weakref.ref(z.grad_fn)
        del z, penalty
        assert node() is None
    finally:
        gc.enable()
