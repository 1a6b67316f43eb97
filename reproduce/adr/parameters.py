"""The click parameters of a world, estimated from all of its log, as a team would have to."""

from __future__ import annotations

import numpy as np

from clickprism.click_models.pbm import Counts
from clickprism.click_models.trust import fit_trust
from clickprism.log_model.parameters import ClickParameters
from clickprism.types import Float64
from reproduce.adr.searches import Log
from reproduce.adr.sums import pair_counts
from reproduce.adr.worlds import Site


def parameters_of(site: Site, log: Log) -> tuple[ClickParameters, float]:
    """Return alpha and beta by the published fit of trust bias, and how far click rates are off by them.

    The error is the mean over positions of |estimated rate / true rate - 1|, over all candidates.
    """
    fitted = fit_trust(counts_of(site, log))
    found = ClickParameters.of_affine(fitted.alpha, fitted.beta, theta=site.theta, source="em")
    truth = ClickParameters.of_trust(site.theta, site.plus, site.minus)
    return found, float(rate_error(found, truth, site.first_slot).mean())


def rate_error(estimated: ClickParameters, truth: ClickParameters, first: Float64) -> Float64:
    """Return the mean of |predicted / true click rate - 1| over documents with these c_1, [positions].

    An intercept near 0 may be off by any factor and do no harm: what counts is the click rate that the line predicts.

    >>> truth = ClickParameters(np.array([1.0, 0.5]), np.array([0.0, 0.1]))
    >>> off = ClickParameters(np.array([1.0, 0.5]), np.array([0.0, 0.13]))
    >>> rate_error(off, truth, np.array([0.4])).round(3).tolist()
    [0.0, 0.1]
    """
    predicted, true = (np.outer(first, each.alpha) + each.beta for each in (estimated, truth))
    return np.asarray(np.abs(predicted / true - 1).mean(axis=0))


def counts_of(site: Site, log: Log) -> Counts:
    """Return clicks and impressions of each document at each position."""
    table = pair_counts(log, site, examined="behaviour")
    rows, positions = np.nonzero(table.impressions)
    clicks, shown = (values[rows, positions].astype(np.float64) for values in (table.clicked, table.impressions))
    return Counts(rows.astype(np.int64), (positions + 1).astype(np.int64), clicks, shown)
