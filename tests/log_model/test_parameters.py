"""Click parameters: the gauge, the file and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickprism.click_models.trust import TrustUser
from clickprism.errors import DataError
from clickprism.log_model.results import FORMAT, ClickParameters

SOUND = {"format": FORMAT, "alpha": [1, 0.5], "beta": [0, -0.1]}


def test_trust_in_the_gauge_by_hand() -> None:
    made = ClickParameters.of_trust(np.array([0.8, 0.5]), np.array([1.0, 0.9]), np.array([0.5, 0.3]))
    assert made.alpha == pytest.approx([1, 0.3 / 0.4])  # .5 (.9 - .3) over .8 (1 - .5)
    assert made.beta == pytest.approx([0, 0.15 - 0.4 * 0.75])
    assert made.theta == pytest.approx([0.8, 0.5])


@pytest.mark.parametrize("setting", ["eye-tracking", "hyperbolic"])
def test_click_rates_are_those_of_the_users(setting: str) -> None:
    user, k = TrustUser(setting=setting), np.arange(1, 11)  # type: ignore[arg-type]
    theta, (plus, minus) = user.observation(k), user.trust(k)
    relevance = np.array([0.0, 0.3, 1.0])
    rates = theta * (relevance[:, None] * plus + (1 - relevance[:, None]) * minus)
    made = ClickParameters.of_trust(theta, plus, minus)
    assert made.click_rates(rates[:, 0]) == pytest.approx(rates)


@given(st.lists(st.tuples(st.floats(1e-6, 1e3), st.floats(-10, 10)), max_size=12), st.booleans())
def test_json_gives_the_same_back(lines: list[tuple[float, float]], with_ends: bool) -> None:
    alpha, beta = np.array([(1.0, 0.0), *lines]).T
    ends = {"alpha_lower": alpha - 1, "beta_upper": beta + 1} if with_ends else {}
    made = ClickParameters(alpha, beta, np.full(len(alpha), 0.5), **ends, confidence=0.8, notes=("one",))
    again = ClickParameters.from_plain(json.loads(json.dumps(made.plain(), allow_nan=False)))
    for name in ("alpha", "beta", "theta", "alpha_lower", "alpha_upper", "beta_lower", "beta_upper"):
        np.testing.assert_array_equal(getattr(again, name), getattr(made, name))
    assert (again.source, again.confidence, again.cut(1).confidence, again.notes) == ("given", 0.8, 0.8, ("one",))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "other"}, "does not hold parameters"),
        ({"alpha": None}, r"Expected `array`, got `null` - at `\$.alpha`"),
        ({"alpha": [1, "2"]}, r"Expected `float | null`, got `str` - at `\$.alpha"),
        ({"alpha": [1, True]}, r"got `bool` - at `\$.alpha"),
        ({"alpha": [1, None]}, "at position 2 alpha is nan"),
        ({"alpha": [1, 0]}, "at position 2 alpha is 0"),
        ({"alpha": [2, 1]}, "alpha_1 must be 1"),
        ({"beta": [0]}, "beta must have one number a position, 2"),
        ({"theta": [0.5, 1.5]}, "theta must be above 0 and at most 1"),
        ({"gamma": 1}, "unknown field `gamma`"),
        ({"notes": [1]}, r"Expected `str`, got `int` - at `\$.notes"),
        ({"confidence": "high"}, r"Expected `float`, got `str` - at `\$.confidence"),
        ({"confidence": 1}, "confidence of intervals must be between 0 and 1"),
        ({"alpha_lower": [1, 0.6], "alpha_upper": [1, 0.4]}, "lower end of an interval of alpha is above"),
        ({"beta_upper": [0, float("inf")]}, "interval of beta is above its upper end, or not finite"),
        ({"beta": [0, 10**400]}, r"at `\$.beta"),
    ],
)
def test_what_is_broken_is_named(change: dict[str, object], words: str) -> None:
    assert len(ClickParameters.from_plain(SOUND)) == 2
    with pytest.raises(DataError, match=words):
        ClickParameters.from_plain(SOUND | change, file="p.json")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    with pytest.raises(DataError, match="cannot be read"):
        ClickParameters.read(file)
    file.write_text("{")
    with pytest.raises(DataError, match=r"p\.json: is not valid JSON.*clickprism bias trust LOG"):
        ClickParameters.read(file)
    file.write_text("[1]")
    with pytest.raises(DataError, match=r"is not a JSON object.*clickprism bias trust LOG"):
        ClickParameters.read(file)
    ClickParameters.from_plain(SOUND).write(file)
    assert ClickParameters.read(file).alpha.tolist() == [1, 0.5]
