"""MODEL_CARD.md: what a ranker is, what it is for, what it assumes, what it reached and where it ends."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Final

from clickprism.serve.bundle.bundle import BundleManifest, Part

KINDS: Final = {
    "linear": "a linear ranker over features",
    "mlp": "a multi-layer network over features",
    "attention": "attention over the features of a document",
    "lambdamart": "gradient boosted trees (LambdaMART)",
    "approximation": "the approximated doubly robust estimate over click vectors",
    "cross-encoder": "a language model that reads query and document together",
    "stored": "a value that comes with each pair, such as from the online store",
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
    sections = {
        "Intended use": _use(manifest),
        "Data": _data(manifest),
        "Method and what it assumes": _method(manifest),
        "Metrics": _table(("measure", "value"), [(name, f"{v:.4f}") for name, v in manifest.metrics.items()])
        or "None was given to the bundle.",
        "Observation": _observation(manifest),
        "Inputs": _inputs(manifest),
        "Limits": _limits(manifest),
    }
    head = f"# {manifest.name}\n\n{KINDS.get(manifest.kind, manifest.kind).capitalize()}, made {manifest.created} by "
    head += f"clickprism {manifest.clickprism}. Generated: change the ranker, not this file.\n"
    return head + "".join(f"\n## {title}\n\n{text}\n" for title, text in sections.items() if text)


def _use(manifest: BundleManifest) -> str:
    texts = [
        "Ordering the documents of one query: scores are compared within a list, higher first. They are not "
        "comparable between queries"
        + (
            ", but estimate a click probability in the first slot."
            if manifest.kind in ("approximation", "cross-encoder")
            else ", nor are they probabilities."
        ),
        *([] if manifest.scope is None else [manifest.scope.sentence()]),
        "Not for decisions about people, nor for data of another kind than that below.",
    ]
    if manifest.naive is not None:
        texts.append("A naive ranker that took clicks for relevance is beside it, to see what debiasing changed.")
    return "\n\n".join(texts)


def _data(manifest: BundleManifest) -> str:
    return _table(("", ""), described_data(manifest.data)) or "Not known."


def described_data(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a ranker was trained on, for people; how features were encoded is for the service.

    >>> described_data({"clicks": "of the log", "searches": 40000, "encoding": {}})
    [('clicks', 'of the log'), ('searches', '40,000')]
    """
    return [
        (name, f"{value:,}" if type(value) is int else str(value)) for name, value in data.items() if name != "encoding"
    ]


def _method(manifest: BundleManifest) -> str:
    texts = [_described(manifest.main)]
    settings = {name: value for name, value in manifest.method.items() if name != "name"}
    if settings:
        texts.append(f"Its settings: {_listed(settings)}.")
    if manifest.settings:
        texts.append(f"The ranker: {_listed(manifest.settings)}.")
    if manifest.imputation is not None:
        texts.append(f"Its imputation is {KINDS[manifest.imputation.kind]}.")
    return "\n\n".join(texts)


def _described(part: Part) -> str:
    if part.kind == "approximation":
        return APPROXIMATE
    name = part.method.get("name")
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


def _observation(manifest: BundleManifest) -> str:
    if not manifest.observation:
        return ""
    rows = [(str(place), f"{value:.4f}") for place, value in enumerate(manifest.observation, start=1)]
    text = "How often each position is observed, relative to position 1:"
    return f"{text}\n\n{_table(('position', 'observation'), rows)}"


def _inputs(manifest: BundleManifest) -> str:
    texts = []
    if manifest.feature_names:
        kind = "none" if manifest.normaliser is None else manifest.normaliser.get("kind")
        texts.append(f"{len(manifest.feature_names)} features, raw, in this order: {_some(manifest.feature_names)}.")
        texts.append(f"Normalisation: {kind}. {MISSING[manifest.missing]}")
    if manifest.click_fields:
        texts.append(f"Click vectors of {len(manifest.click_fields)} fields: {_some(manifest.click_fields)}.")
    if manifest.kind == "cross-encoder" or (manifest.imputation and manifest.imputation.kind == "cross-encoder"):
        texts.append("The texts of the query and of each document.")
    return "\n\n".join(texts)


def _limits(manifest: BundleManifest) -> str:
    lines = [
        "Clicks alone cannot tell every kind of bias apart: what the method assumes above must hold for the log.",
        "It knows the users, documents and features of its training data; measure it again when these change.",
        "The hashes of the bundle find damage; they do not prove who made it.",
        *manifest.notes,
    ]
    return "\n".join(f"- {line}" for line in lines)


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items() if not isinstance(value, dict))


def _some(names: tuple[str, ...], most: int = 40) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"`{name}`" for name in names[:most]) + more


def _table(head: tuple[str, str], rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"| {name} | {value} |" for name, value in rows]
    return "\n".join([f"| {head[0]} | {head[1]} |", "|---|---|", *lines]) if lines else ""
