"""How far the tests behind the verdicts are off where nothing is there, and whether intervals hold the truth."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.diagnosis.beyond import Beyond, beyond
from clickprism.diagnosis.position import fall_of
from clickprism.users.pbm import PositionUser
from reproduce.diagnosis.study import Tried, confusions
from tests.diagnosis.tiny_logs import small_world

SEEDS = range(12)


@pytest.fixture(scope="module")
def nothing() -> list[Beyond]:
    """Worlds with position bias and no other."""
    return [beyond(small_world(queries=120, sessions=20_000, seed=seed)) for seed in SEEDS]


def test_without_trust_its_test_is_standard_normal(nothing: list[Beyond]) -> None:
    z = np.array([each.trust.z for each in nothing])
    assert abs(z.mean()) < 3 / np.sqrt(len(z))
    assert np.abs(z).max() < 3.3
    assert 0.4 < z.std() < 1.7


def test_without_coupling_its_test_does_not_lean_to_it(nothing: list[Beyond]) -> None:
    z = np.array([each.coupling.z for each in nothing if each.coupling is not None])
    assert len(z) == len(SEEDS)
    assert z.mean() < 3 / np.sqrt(len(z))
    assert z.max() < 3.3


def test_intervals_of_the_curve_hold_the_truth() -> None:
    truth = PositionUser().observation(np.arange(1, 11))
    inside = []
    for seed in SEEDS:
        curve = fall_of(small_world(queries=120, sessions=20_000, seed=seed)).curve
        inside.append((curve.lower <= truth / truth[0]) & (truth / truth[0] <= curve.upper))
    assert np.mean(np.stack(inside)[:, 1:]) > 0.85  # 95% are meant; positions of a world go together


def test_a_study_counts_what_was_right() -> None:
    def tried(seed: int, truth: str, said: str) -> Tried:
        return Tried(seed, {"trust": truth}, {"trust": said}, {"trust": ""}, {})

    cases = [("present", "present"), ("present", "absent"), ("absent", "absent"), ("absent", "present")]
    cases += [("unknown", "unknown"), ("unknown", "present"), ("absent", "unknown")]
    (found,) = confusions([tried(seed, *each) for seed, each in enumerate(cases)])
    assert (found.worlds, found.present, found.right) == (7, 2, 3)
    assert (found.alarms, found.missed, found.unknown) == ((3, 5), (1,), (6,))
    assert found.alarm_share == pytest.approx(2 / 5)
    assert not found.met
