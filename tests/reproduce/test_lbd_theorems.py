"""Theorems 1 and 2 of LBD on numbers worked out by hand, as printed and ours."""

from __future__ import annotations

import numpy as np
import pytest

from reproduce.lbd.theorems import orders_the_pair, smallest_beta


def test_the_printed_condition_holds_where_the_order_is_wrong() -> None:
    """o = 1, o' falls from .8 at x_1 to .2 at x_2: beta d = .6. Printed: .6 / .8 <= 1; ours: .6 / .2 > 1.

    r' = r / o' is .1 / .8 = .125 at x_1 and .05 / .2 = .25 at x_2: the less relevant document is ranked first.
    """
    fitted = np.linspace(0.8, 0.2, 201)
    about = {"distance": 2.0, "alpha": 0.0, "beta": 0.3}
    assert 0.1 / fitted[0] < 0.05 / fitted[-1]
    assert orders_the_pair((0.1, 0.05), np.ones(201), fitted, form="printed", **about)
    assert not orders_the_pair((0.1, 0.05), np.ones(201), fitted, form="ours", **about)


@pytest.mark.parametrize(("beta", "holds"), [(0.49, True), (0.51, False)])
def test_the_condition_by_hand(beta: float, holds: bool) -> None:
    """Constant o = .5 and o' = .25, alpha = .5, d = 1: factor 2, integral (beta .5 + .125) / .25 = 2 beta + .5.

    r_1 / r_2 - 1 = 3 is met up to 4 beta + 1 = 3, beta = .5.
    """
    flat = np.ones(11)
    for form in ("printed", "ours"):
        found = orders_the_pair(
            (0.4, 0.1),
            0.5 * flat,
            0.25 * flat,
            distance=1.0,
            alpha=0.5,
            beta=beta,
            form=form,
        )
        assert found is holds


def test_the_smallest_beta_by_hand() -> None:
    """Clicks in proportion need none. Else m = 1: |.5 - .2 n| = |.2 n - .1| at n = 1.5, which is .2 over d = 4."""
    assert smallest_beta(np.array([0.5, 0.25]), np.array([0.2, 0.1]), distance=1.0) == pytest.approx(0, abs=1e-9)
    for form in ("printed", "ours"):
        found = smallest_beta(np.array([0.5, 0.1]), np.array([0.2, 0.2]), distance=4.0, form=form)
        assert found == pytest.approx(0.05)


def test_a_probability_limits_how_small_relevance_may_be() -> None:
    """|.9 - .1 n| = |.2 n - .9| at n = 6 is .3; but n <= 1 / .2 = 5, where it is .4."""
    first, second = np.array([0.9, 0.9]), np.array([0.1, 0.2])
    assert smallest_beta(first, second, distance=1.0, form="printed") == pytest.approx(0.3)
    assert smallest_beta(first, second, distance=1.0, form="ours") == pytest.approx(0.4)
