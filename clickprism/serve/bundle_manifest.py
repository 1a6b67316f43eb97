"""What manifest.json of a bundle says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final

from clickprism.errors import DataError, SettingError
from clickprism.serve import bundle_files as files
from clickprism.settings import build, plain

SCHEMA: Final = 1
MOST_FEATURES: Final = 1_000_000
MOST_DOCUMENTS: Final = 1_000_000
LONGEST_REASON: Final = 1000

Missing: TypeAlias = Literal["mean", "own", "refuse"]
Role: TypeAlias = Literal["main", "naive", "imputation"]


@final
@dataclass(frozen=True)
class Part:
    """One ranker of a bundle.

    Attributes:
        kind: linear, mlp, attention, lambdamart, approximation or cross-encoder.
        settings: of the ranker, as its settings class takes them.
        method: what trained it: its name and settings.
        normaliser: its kind and the features it keeps; None where features go in as they are.
        missing: what becomes of a feature without a value (NaN): "mean", that of training; "own", the ranker knows;
            "refuse", an error.
        calibration: slope and intercept that make log odds of a click from its scores; None where it has none.
    """

    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    method: dict[str, Any] = field(default_factory=dict)
    normaliser: dict[str, Any] | None = None
    missing: Missing = "refuse"
    calibration: tuple[float, float] | None = None


@final
@dataclass(frozen=True)
class Scope:
    """Which documents of a query a ranker may reorder.

    A ranker that learned only from the documents that an engine showed may be wrong about other candidates.

    Attributes:
        rerank_depth: Number of documents to re-rank, counted from the first in the engine's order; None for a full
            candidate list.
        reason: Why, in one line of plain text.

    >>> Scope(10).sentence()
    "Re-rank only the first 10 documents in the engine's order; the others keep their order below them."
    >>> Scope(reason="The log names all candidates.").sentence()
    'Rank a full candidate list. The log names all candidates.'
    >>> Scope(0)
    Traceback (most recent call last):
    clickprism.errors.SettingError: rerank_depth must be a whole number from 1 to 1,000,000, or None, got 0
    """

    rerank_depth: int | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        depth: object = self.rerank_depth
        if depth is not None and not (type(depth) is int and 1 <= depth <= MOST_DOCUMENTS):
            raise SettingError("rerank_depth", depth, f"be a whole number from 1 to {MOST_DOCUMENTS:,}, or None")
        reason: object = self.reason
        if not isinstance(reason, str):
            raise SettingError("reason", reason, "be text")
        if len(reason) > LONGEST_REASON or not reason.isprintable():
            raise SettingError("reason", reason[:80], f"be one line of at most {LONGEST_REASON:,} characters")

    def sentence(self) -> str:
        """Return the scope, and the reason for it, in plain English."""
        depth = self.rerank_depth
        text = "Rank a full candidate list."
        if depth is not None:
            documents = f"first {depth:,} documents" if depth > 1 else "first document"
            text = f"Re-rank only the {documents} in the engine's order; the others keep their order below them."
        return f"{text} {self.reason}".rstrip()


@final
@dataclass(frozen=True)
class BundleManifest:
    """What a bundle is; manifest.json has the same names.

    Attributes:
        schema_version: of the format; 1.
        name: for people.
        kind: of the ranker, see `Part`.
        method: what trained it.
        settings: of the ranker.
        feature_names: in the order in which they go in; empty for a ranker that takes none.
        normaliser: see `Part`.
        missing: see `Part`.
        click_fields: the names of a click vector, in order; empty for a ranker that takes none.
        imputation: what estimates a pair without clicks, of an approximation; None for the mean of training.
        naive: a ranker on the same features that took clicks for relevance, to compare with; None without one.
        observation: how often each position is observed, relative to position 1; empty without a curve.
        data: what it was trained on: a name, a fingerprint, sizes.
        metrics: what it reached, by measure.
        created: when it was made, UTC.
        clickprism: the version that made it.
        notes: what a reader should know.
        scope: which documents of a query the ranker may reorder; None where the bundle does not say.
        files: every file but the manifest, with its SHA-256.
    """

    schema_version: int
    kind: str
    files: dict[str, str]
    name: str = ""
    method: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    feature_names: tuple[str, ...] = ()
    normaliser: dict[str, Any] | None = None
    missing: Missing = "refuse"
    click_fields: tuple[str, ...] = ()
    imputation: Part | None = None
    naive: Part | None = None
    observation: tuple[float, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    created: str = ""
    clickprism: str = ""
    notes: tuple[str, ...] = ()
    scope: Scope | None = None

    @property
    def main(self) -> Part:
        """The ranker itself, without what is beside it."""
        return Part(self.kind, self.settings, self.method, self.normaliser, self.missing)

    def part(self, role: Role) -> Part:
        """The ranker of this role; an error where the bundle has none."""
        found = self.main if role == "main" else self.naive if role == "naive" else self.imputation
        if found is None:
            raise DataError(f"the bundle {self.name!r} has no {role} ranker", remedy=f"Make one with --{role}")
        return found

    def plain(self) -> dict[str, Any]:
        """Return the manifest as JSON holds it; without a scope it has no such name, so that older versions read it."""
        values = plain(self)
        if self.scope is None:
            del values["scope"]
        return values


def read_manifest(text: bytes, file: Path) -> BundleManifest:
    """The manifest that a file holds; a name it should not have, or a value of another type, is an error."""
    values: dict[str, Any] = files.parsed(text, file=file)
    version = values.get("schema_version")
    if version != SCHEMA:
        problem = f"is a bundle of schema version {version!r}, this clickprism reads {SCHEMA}"
        raise DataError(problem, file=file, remedy="Use the clickprism that made it, or a newer one")
    try:
        parts = {
            role: build(Part, values[role], path=role)
            for role in ("imputation", "naive")
            if values.get(role) is not None
        }
        scope = {} if values.get("scope") is None else {"scope": _read_scope(values["scope"])}
        manifest = build(BundleManifest, {**values, **parts, **scope})
    except (SettingError, TypeError) as error:
        raise DataError(f"is not the manifest of a bundle ({error})", file=file, remedy=files.ANEW) from None
    if len(manifest.feature_names) > MOST_FEATURES or len(set(manifest.feature_names)) < len(manifest.feature_names):
        raise DataError("has too many features, or one twice", file=file, remedy=files.ANEW)
    return manifest


def _read_scope(values: Any) -> Scope:
    """Return the scope that a manifest states; unlike settings of a command, text is never read as a number."""
    if not isinstance(values, dict):
        raise SettingError("scope", values, "be a table of settings")
    for name in sorted(values.keys() - {"rerank_depth", "reason"}):
        raise SettingError(f"scope.{name}", values[name], "be a known setting (known: reason, rerank_depth)")
    try:
        return Scope(**values)
    except SettingError as error:
        raise error.renamed(f"scope.{error.field}") from None
