"""The study over simulated worlds counts right and wrong verdicts."""

from __future__ import annotations

import pytest

from reproduce.diagnosis.study import Tried, as_csv, as_markdown, confusions


def tried(seed: int, truth: str, said: str) -> Tried:
    return Tried(seed, {"trust": truth}, {"trust": said}, {"trust": "0.2"}, 1.0)


def test_a_study_counts_what_was_right() -> None:
    cases = [("present", "present"), ("present", "absent"), ("absent", "absent"), ("absent", "present")]
    cases += [("inconclusive", "inconclusive"), ("inconclusive", "present"), ("absent", "inconclusive")]
    worlds = [tried(seed, *each) for seed, each in enumerate(cases)]
    (found,) = confusions(worlds)
    assert (found.worlds, found.present, found.right) == (7, 2, 3)
    assert (found.alarms, found.missed, found.inconclusive) == ((3, 5), (1,), (6,))
    assert found.alarm_share == pytest.approx(2 / 5)
    assert not found.met
    assert "trust: present for absent, 0.2" in as_markdown(worlds)
    assert len(as_csv(worlds).splitlines()) == 8
