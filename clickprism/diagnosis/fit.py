"""Goodness of fit: does the model of the log describe its clicks, so that its intervals can be trusted?"""

from __future__ import annotations

import math

import numpy as np

from clickprism._util.tables import Table
from clickprism.diagnosis.finding import Finding, inconclusive
from clickprism.log_model.model import LogModel
from clickprism.log_model.results import GoodnessOfFit, p_text


def fit(model: LogModel) -> Finding:
    """Return whether observed clicks match expected ones, by position and first-shown position ("present": they do)."""
    quality = model.fit_quality
    if not math.isfinite(quality.p_value):
        return inconclusive("fit", "The log has too few clicks to check how well the model fits.", "Collect more data.")
    if quality.fits:
        sentence = (
            "The model fits: the clicks that it expects match the observed ones at every position"
            f" ({p_text(quality.p_value)})."
        )
        advice = "Nothing to do."
    else:
        sentence = (
            f"The model does not fit well: {_largest(quality)} ({p_text(quality.p_value)}). Its intervals may be too"
            " narrow."
        )
        advice = (
            "Use the estimates as approximate. Check the findings on interaction, coupling and drift first: users who"
            " react to clicks above, or days that differ, are common causes."
        )
    return Finding(
        "fit",
        "present" if quality.fits else "absent",
        sentence,
        advice,
        estimate=quality.largest if math.isfinite(quality.largest) else None,
        unit="largest significant |log(observed / expected clicks)|",
        p_value=quality.p_value,
        details={"ratio": quality.ratio, "z": quality.z, "bins": list(quality.bins)},
        table=Table(
            "Observed over expected clicks by position (rows) and by where the engine ranked the document (columns)",
            ["position", *quality.bins],
            [
                [str(at + 1), *(f"{value:.2f}" if math.isfinite(value) else "" for value in row)]
                for at, row in enumerate(quality.ratio)
            ],
        ),
    )


def _largest(quality: GoodnessOfFit) -> str:
    """Return the most significant deviation as words."""
    known = np.where(np.isfinite(quality.z) & np.isfinite(quality.ratio), np.abs(quality.z), 0.0)
    at, bin_of = np.unravel_index(int(np.argmax(known)), known.shape)
    ratio = float(quality.ratio[at, bin_of])
    more = f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'fewer'} clicks than expected"
    return f"position {at + 1} has {more} on documents that the engine ranked at position {quality.bins[bin_of]}"
