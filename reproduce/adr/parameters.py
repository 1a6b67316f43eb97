"""The click parameters of a world, estimated from all of its log, as a team would have to."""

from __future__ import annotations

import numpy as np

from clickprism.observation.bootstrap import Bootstrap
from clickprism.observation.counts import Counts
from clickprism.observation.estimate_parameters import HarvestedMap, estimate_parameters, rate_error
from clickprism.observation.parameters import ClickParameters
from clickprism.observation.placed import PlacedCounts
from reproduce.adr.searches import Log
from reproduce.adr.sums import pair_counts
from reproduce.adr.worlds import Site


def parameters_of(site: Site, log: Log) -> tuple[ClickParameters, float]:
    """Alpha and beta by harvest from what stood at several positions, and how far click rates are off by them.

    The error is the mean over positions of |estimated rate / true rate - 1|, over all candidates.
    """
    placed = PlacedCounts(counts_of(site, log), site.judged.lists.list_of, theta=site.theta)
    found = estimate_parameters(placed, HarvestedMap(), bootstrap=Bootstrap(resamples=0))
    truth = ClickParameters.of_trust(site.theta, site.plus, site.minus)
    return found, float(rate_error(found, truth, site.first_slot).mean())


def counts_of(site: Site, log: Log) -> Counts:
    """Clicks and impressions of each document at each position."""
    table = pair_counts(log, site, examined="behaviour")
    rows, places = np.nonzero(table.impressions)
    clicks, shown = (values[rows, places].astype(np.float64) for values in (table.clicked, table.impressions))
    return Counts(rows.astype(np.int64), (places + 1).astype(np.int64), clicks, shown)
