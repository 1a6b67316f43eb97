"""Judged lists with many candidates and features as LETOR has them, on which small logs are simulated.

`merged_mq2008` merges queries of MQ2008, whose own lists are short. `letor_like` simulates a collection of the size of
OHSUMED in LETOR 3.0 (106 queries, 140 candidates, 45 features): correlated features, most of them with a long tail, and
relevance that is not linear in them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from clickprism.data.letor import read_letor
from clickprism.types import JudgedLists, Lists

MQ2008: Final = Path(__file__).parents[2].parent / "shared/data/mq2008"
PARTS: Final = 5  # files of MQ2008
MERGED: Final = 7  # queries of MQ2008 in one list
STRETCHED: Final = 4.0  # features of MQ2008, from 0 to 1, become exp(4 x)
QUERIES, CANDIDATES, FEATURES = 106, 140, 45
FACTORS: Final = 8  # on which the simulated features depend
TEST_SHARE: Final = 0.2  # of the simulated queries


def merged_mq2008(fold: int) -> tuple[JudgedLists, JudgedLists]:
    """Return the training and the test part of a fold of MQ2008, seven queries merged into one list.

    Three of the five files are for training and one is for the test, as in the folds of LETOR.
    """
    files = [MQ2008 / f"S{(fold + number) % PARTS + 1}.txt.gz" for number in range(PARTS)]
    return _merged(read_letor(files[:3]), fold), _merged(read_letor(files[4]), fold)


def _merged(judged: JudgedLists, seed: int) -> JudgedLists:
    """Merge queries by chance, and give their features long tails."""
    order = np.random.default_rng(seed).permutation(len(judged))
    judged = judged.take(order[: len(order) // MERGED * MERGED])
    offsets = judged.lists.offsets[::MERGED]
    features = np.exp(STRETCHED * judged.lists.features).astype(np.float32)
    names = np.array([f"m{number}" for number in range(len(offsets) - 1)])
    return JudgedLists(Lists(features, offsets, names), judged.grades)


def letor_like(seed: int) -> tuple[JudgedLists, JudgedLists]:
    """Return the training and the test queries of a simulated collection.

    A third of the features are normal, a third log-normal and a third cubed. Half of the explained variance of
    relevance are products and absolute values of the factors on which the features depend. A document has a grade from
    0 to 2.
    """
    rng = np.random.default_rng([seed, 2])
    size = QUERIES * CANDIDATES
    factors = rng.normal(size=(size, FACTORS))
    hidden = factors @ rng.normal(size=(FACTORS, FEATURES)) / np.sqrt(FACTORS) + 0.5 * rng.normal(size=(size, FEATURES))
    shape = rng.permutation(np.arange(FEATURES) % 3)
    features = np.where(shape == 0, hidden, np.where(shape == 1, np.exp(1.5 * hidden), hidden**3)).astype(np.float32)
    linear = factors @ np.abs(rng.normal(size=FACTORS))
    curved = factors[:, 0] * factors[:, 1] + np.abs(factors[:, 2]) - factors[:, 3] * np.abs(factors[:, 4])
    level = np.repeat(rng.normal(0, 0.3, QUERIES), CANDIDATES)  # some queries have more relevant documents
    utility = linear / linear.std() + curved / curved.std() + rng.normal(size=size) + level
    grades = np.digitize(utility, np.quantile(utility, [0.7, 0.9])).astype(np.int32)
    names = np.array([f"q{number}" for number in range(QUERIES)])
    judged = JudgedLists(Lists(features, np.arange(QUERIES + 1) * CANDIDATES, names), grades)
    cut = round(QUERIES * (1 - TEST_SHARE))
    return judged.take(np.arange(cut)), judged.take(np.arange(cut, QUERIES))
