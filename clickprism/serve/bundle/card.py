"""MODEL_CARD.md: what a ranker is, what it is for, what it assumes, what it reached and where it ends."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, StrictUndefined

from clickprism.serve.bundle.bundle import BundleManifest

KINDS: Final = {
    "linear": "a linear ranker over features",
    "mlp": "a multi-layer network over features",
    "attention": "attention over the features of a document",
    "lambdamart": "gradient boosted trees (LambdaMART)",
    "approximation": "the approximated doubly robust estimate over click vectors",
    "cross-encoder": "a language model that reads query and document together",
}
MISSING: Final = {
    "mean": "A missing feature (NaN) takes the mean of training.",
    "own": "Missing features (NaN) go where the trees learned to send them.",
    "refuse": "A missing feature (NaN) is refused: there is no rule for it.",
}
APPROXIMATE: Final = (
    "Two small networks on the click vector of a pair, fitted to clicks in a randomised first slot: one estimates the "
    "click there, the other how much of an imputed value to add (Zou et al. 2022, §6.2). Pairs that were never shown "
    "rank as imputed. It assumes that the first slot was filled at random when the clicks were taken, and that the "
    "vectors end before the clicks they predict."
)

BY_AUTO: Final = {
    "log_model": "Trained by `clickprism auto` on clicks corrected for position bias, and on the order of the engine "
    "as far as clicks show that it carries relevance. It assumes that the position curve below is right, and that "
    "shown documents differ from others only by their features and by how the engine ranks them.",
    "imitation": "Trained by `clickprism auto` to imitate the order of the engine. It learned nothing from clicks.",
}


def model_card(manifest: BundleManifest) -> str:
    """Return the card as Markdown."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)  # noqa: S701 - Markdown
    template = environment.from_string(files(__package__).joinpath("card.md.j2").read_text(encoding="utf-8"))
    normaliser = manifest.normaliser
    text = template.render(
        bundle=manifest,
        what=str(manifest.data.get("ranker", KINDS.get(manifest.kind, manifest.kind))),
        data=described_data(manifest.data),
        method=_described(manifest),
        settings={name: value for name, value in manifest.method.items() if name != "name"},
        normalisation="none" if normaliser is None else normaliser.get("kind"),
        missing=MISSING[manifest.missing],
    )
    return re.sub("\n{3,}", "\n\n", text).rstrip() + "\n"


def described_data(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a ranker was trained on, for people.

    >>> described_data({"clicks": "of the log", "searches": 40000, "encoding": {}})
    [('clicks', 'of the log'), ('searches', '40,000')]
    """
    return [
        (name, f"{value:,}" if type(value) is int else str(value))
        for name, value in data.items()
        if name not in ("encoding", "ranker")
    ]


def _described(manifest: BundleManifest) -> str:
    if manifest.kind == "approximation":
        return APPROXIMATE
    name = manifest.method.get("name")
    from clickprism.debias import METHODS
    from clickprism.settings import resolve

    if name in BY_AUTO:
        return BY_AUTO[name]
    if name not in METHODS:
        return f"Trained by {name}." if name else "How it was trained is not known."
    text = inspect.getdoc(resolve(METHODS, str(name), path="method")) or ""
    blocks = text.partition("\nAttributes:")[0].strip().split("\n\n")
    kept = [f"```\n{block}\n```" if "=" in block and "." not in block.rstrip()[-1:] else block for block in blocks[:4]]
    return f"`{name}`: " + "\n\n".join(block for block in kept if ">>>" not in block)
