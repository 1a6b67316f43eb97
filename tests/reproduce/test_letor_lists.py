"""The judged lists with many candidates on which small logs are simulated."""

from __future__ import annotations

import numpy as np

from reproduce.choice.letor_lists import CANDIDATES, FEATURES, MERGED, letor_like, merged_mq2008
from tests.shared_data import shared_data


def test_simulated_lists_have_the_size_of_a_letor_collection() -> None:
    train, test = letor_like(0)
    assert (len(train), len(test)) == (85, 21)
    assert train.lists.features.shape == (85 * CANDIDATES, FEATURES)
    assert np.bincount(np.concatenate([train.grades, test.grades])).argmax() == 0
    tails = np.abs(train.lists.features).max(axis=0) / train.lists.features.std(axis=0)
    assert (tails > 15).mean() > 0.3
    assert not np.array_equal(letor_like(1)[0].grades, train.grades)


def test_merged_lists_keep_the_documents_and_grades_of_their_queries() -> None:
    shared_data("mq2008/S1.txt.gz")
    train, test = merged_mq2008(0)
    assert len(train) == 3 * 157 // MERGED
    assert len(test) == 157 // MERGED
    assert 120 < train.lists.lengths.mean() < 160
    assert train.lists.features.min() >= 1
