"""The fingerprint of a log changes with everything that the log contains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clickprism.data.logged import Logged, log_fingerprint
from clickprism.types import Clicks, Lists


def small(clicked: int = 3) -> Logged:
    lists = Lists(np.zeros((2, 1), np.float32), np.array([0, 2]), np.array(["q"]))
    counts = np.array([clicked, 0]), np.array([9])
    return Logged(Clicks(lists, np.array([0, 2]), np.array([0, 1]), np.array([1, 2]), *counts), days=np.array([0]))


def test_everything_in_a_log_changes_its_fingerprint() -> None:
    log = small()
    lists = log.clicks.lists
    others = [
        small(4),
        replace(log, days=None),
        replace(log, days=np.array([1])),
        replace(log, policy=np.array([0]), policies=("new",)),
        replace(log, randomised=np.array([True, False])),
        replace(log, feature_names=("price",)),
        replace(log, clicks=replace(log.clicks, lists=replace(lists, document_ids=np.array(["a", "b"])))),
        replace(log, clicks=replace(log.clicks, lists=lists.with_features(np.ones((2, 1), np.float32)))),
        replace(log, clicks=replace(log.clicks, seen=np.array([3, 0]))),
    ]
    assert log_fingerprint(small()) == log_fingerprint(log)
    assert len({log_fingerprint(each) for each in [log, *others]}) == len(others) + 1
