"""Every method's loss is a mean over lists, and its statistics are sums: what lets processes share a batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from clickprism.debias.loop import shares
from clickprism.types import Clicks
from tests.contracts.test_method_contracts import NETWORK_METHODS, learner_of, method_of


@pytest.mark.parametrize("name", NETWORK_METHODS)
def test_the_shares_of_a_batch_add_up_to_it(name: str, clicks: Clicks, monkeypatch: pytest.MonkeyPatch) -> None:
    if method_of(name).needs_patterns:
        often = clicks.clicks / clicks.list_impressions > 0.3
        clicks = replace(clicks, clicks=np.where(often, clicks.list_impressions, 0))
    learner = learner_of(name, clicks)
    monkeypatch.setattr(torch, "rand", torch.ones)  # nothing is dropped: processes draw for themselves
    whole = next(shares(clicks, 25)).batch
    parts = [next(shares(clicks, 25, rank=rank, processes=2)) for rank in range(2)]
    assert [round(part.weight * 25) for part in parts] == [13, 12]
    torch.manual_seed(1)
    losses = [{key: value.item() for key, value in learner.loss(part.batch).items()} for part in parts]
    for key, value in learner.loss(whole).items():
        mean = sum(part.weight * loss[key] for part, loss in zip(parts, losses, strict=True))
        assert mean == pytest.approx(value.item(), rel=1e-5)
    sums = learner.statistics(whole)
    if sums is not None:
        each = [learner.statistics(part.batch) for part in parts]
        torch.testing.assert_close(torch.stack([part for part in each if part is not None]).sum(0), sums)
