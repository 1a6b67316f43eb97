"""Conditional mutual information in closed form: worked by hand, against a sum in float64, at the ends, its slope."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clickprism.debias.losses import LARGEST, mutual_information

odds = st.floats(-30, 30, width=32)


def direct(seen: float, unseen: float, observed: float) -> float:
    """Eq. 14 as printed, in float64."""
    one, zero, known = (1 / (1 + math.exp(-each)) for each in (seen, unseen, observed))
    total, mean = 0.0, known * one + (1 - known) * zero
    for share, given_o in ((known, one), (1 - known, zero)):
        for relevance, overall in ((given_o, mean), (1 - given_o, 1 - mean)):
            total += share * relevance * math.log(relevance / overall)
    return total


def test_a_case_worked_by_hand() -> None:
    """P(O) = 1/2, P(R | 1) = 3/4, P(R | 0) = 1/4: I = log 2 - H(3/4) = 3/4 log 3/2 + 1/4 log 1/2."""
    value = mutual_information(torch.tensor(math.log(3)), torch.tensor(-math.log(3)), torch.tensor(0.0))
    assert value.item() == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5), rel=1e-6)


@settings(max_examples=300, deadline=None)
@given(odds, odds, odds)
def test_it_is_never_negative_and_the_printed_sum(seen: float, unseen: float, observed: float) -> None:
    value = mutual_information(*torch.tensor([[seen], [unseen], [observed]])).item()
    assert value >= 0
    expected = direct(*(float(np.clip(each, -LARGEST, LARGEST)) for each in (seen, unseen, observed)))
    assert value == pytest.approx(expected, rel=2e-3, abs=3e-7)


@settings(max_examples=100, deadline=None)
@given(odds, odds)
def test_it_is_exactly_zero_where_independent(relevance: float, observed: float) -> None:
    value = mutual_information(*torch.tensor([[relevance], [relevance], [observed]]))
    assert value.item() == 0.0


@pytest.mark.parametrize("apart", [1e-4, 1e-3, 1e-2, 0.1])
def test_small_dependence_is_not_lost_in_rounding(apart: float) -> None:
    value = mutual_information(*torch.tensor([0.3 + apart, 0.3, -1.0]))
    assert value.item() == pytest.approx(direct(0.3 + apart, 0.3, -1.0), rel=2e-2)
    assert value.item() > 0


def test_its_gradient_agrees_with_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    points = [3 * torch.randn(40, generator=generator, dtype=torch.float64) for _ in range(3)]
    points[1][:10] = points[0][:10] + 1e-3
    assert torch.autograd.gradcheck(mutual_information, [each.requires_grad_() for each in points])


def test_gradients_are_finite_at_the_ends() -> None:
    ends = torch.tensor([-1e9, -50.0, 0.0, 50.0, 1e9])
    seen, unseen, observed = (
        each.flatten().clone().requires_grad_() for each in torch.meshgrid(ends, ends, ends, indexing="ij")
    )
    torch.autograd.backward(mutual_information(seen, unseen, observed).sum())
    for each in (seen, unseen, observed):
        assert each.grad is not None
        assert torch.isfinite(each.grad).all()
