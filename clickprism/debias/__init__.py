"""How clicks become a loss, one method a file.

A new method is one file here, one line in `METHODS`, a test, and an entry in docs/methods.md. The common contracts in
`tests/contracts` run over everything that is named here.
"""

from typing import Final

METHODS: Final[dict[str, str]] = {
    "labels": "clickprism.debias.labels:Labels",
    "click": "clickprism.debias.click:Click",
    "ipw": "clickprism.debias.ipw:InversePropensity",
    "dla": "clickprism.debias.dla:DualLearning",
}
