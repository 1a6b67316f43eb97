"""A bundle: a ranker as a folder that can be copied, verified and served, and that never changes.

`manifest.json` says what it is and names every file with its SHA-256. Loading checks them all, refuses what it does not
know, and runs nothing. The hashes detect damage; they do not prove where a bundle came from, so serve those of people
you trust. `clickprism.serve.scoring.scorer` scores documents with it; docs/reference/serving.md has the format.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final

import msgspec
import numpy as np
from numpy.typing import NDArray

from clickprism._util.tables import Table
from clickprism.errors import DataError, MissingExtraError, SettingError
from clickprism.serve.scoring.evidence import Evidence

MANIFEST: Final = "manifest.json"
MB: Final = 1 << 20
NAMES: Final = re.compile(r"(?!manifest\.)[a-z][a-z0-9_-]{0,60}\.(?:onnx|safetensors|txt|json)|MODEL_CARD\.md")
LARGEST: Final = {
    ".onnx": 2048 * MB - 1,
    ".safetensors": 4096 * MB,
    ".txt": 1024 * MB,
    ".json": 256 * MB,
    ".md": 4 * MB,
}
LARGEST_MANIFEST: Final = 16 * MB
LARGEST_HEADER: Final = 16 * MB
REMEDY: Final = "Create the bundle again with clickprism model bundle, or copy it again from its source"
ONLY: Final = "A bundle holds what its manifest names and nothing else: move the file away"


def opened(folder: Path, name: str) -> BufferedReader:
    """Open a regular file of a folder; links are not followed, pipes not waited for, and large files not opened."""
    largest = LARGEST_MANIFEST if name == MANIFEST else LARGEST[os.path.splitext(name)[1]]
    try:
        handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        is_link = error.errno == errno.ELOOP
        problem = "is a link, and a bundle has no links" if is_link else f"cannot be read ({error.strerror})"
        raise DataError(problem, file=folder / name, remedy=REMEDY) from None
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode) or about.st_size > largest:
        os.close(handle)
        problem = f"is larger than {largest:,} bytes" if stat.S_ISREG(about.st_mode) else "is not a regular file"
        raise DataError(problem, file=folder / name, remedy=REMEDY)
    return os.fdopen(handle, "rb")


def _digest(folder: Path, name: str) -> str:
    """Return the SHA-256 of a file; refuse a .safetensors file that is something else, such as a pickle."""
    with opened(folder, name) as file:
        if name.endswith(".safetensors"):
            first, size = file.read(9), os.fstat(file.fileno()).st_size
            header = int.from_bytes(first[:8], "little")
            if size < 10 or header > min(LARGEST_HEADER, size - 8) or first[8:] != b"{":
                raise DataError("is not a safetensors file", file=folder / name, remedy=REMEDY)
            file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _changed(file: Path) -> DataError:
    return DataError("was changed after the bundle was made: its SHA-256 differs", file=file, remedy=REMEDY)


SCHEMA: Final = 2
MOST_FEATURES: Final = 1_000_000
MOST_DOCUMENTS: Final = 1_000_000
LONGEST_REASON: Final = 1000

Missing: TypeAlias = Literal["mean", "own", "refuse"]


@final
class Scope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
class BundleManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a bundle is; manifest.json has the same names.

    Attributes:
        schema_version: Version of the format.
        kind: Kind of the ranker: linear, mlp, attention, lambdamart, approximation or cross-encoder.
        files: SHA-256 of every file but the manifest.
        name: Name for people.
        method: Name and settings of the method that trained the ranker.
        settings: Settings of the ranker, as its settings class takes them.
        feature_names: Names of the features, in order; empty for a ranker that has none.
        normaliser: Kind of the normaliser and the features that it keeps; None if features are used unchanged.
        missing: What replaces a missing feature (NaN): "mean" of the training data, "own" if the ranker handles it, or
            "refuse" for an error.
        click_fields: Names of the values of a click vector, in order; empty for a ranker that takes none.
        observation: How often each position is observed, relative to position 1; empty without a curve.
        data: What it was trained on: a name, a fingerprint, sizes.
        metrics: Value of each measure.
        created: When it was made (UTC).
        clickprism: Version of clickprism that made it.
        notes: Notes for the model card.
        scope: Which documents of a query the ranker may reorder; None if the bundle does not say.
        evidence: How scores are joined with the clicks on a pair; None to serve the ranker's score alone.
    """

    schema_version: int
    kind: str
    files: dict[str, str]
    name: str = ""
    method: dict[str, Any] = msgspec.field(default_factory=dict)
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    feature_names: tuple[str, ...] = ()
    normaliser: dict[str, Any] | None = None
    missing: Missing = "refuse"
    click_fields: tuple[str, ...] = ()
    observation: tuple[float, ...] = ()
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    created: str = ""
    clickprism: str = ""
    notes: tuple[str, ...] = ()
    scope: Scope | None = None
    evidence: Evidence | None = None

    @property
    def ranker(self) -> str:
        """What was trained, and by which method."""
        what = f"{self.data['ranker']} ({self.kind})" if "ranker" in self.data else self.kind
        return f"{what}, trained by {self.method.get('name', 'an unknown method')}"

    @property
    def within_list(self) -> bool:
        """Whether features are normalised within each list, so that scores depend on the other documents."""
        return str((self.normaliser or {}).get("kind")).startswith("query-")


class _Version(msgspec.Struct):
    schema_version: Any = None


def read_manifest(text: bytes, file: Path) -> BundleManifest:
    """Return the manifest in a file; an unknown name or a value of another type is an error."""
    try:
        version = msgspec.json.decode(text, type=_Version).schema_version
        if version != SCHEMA:
            problem = f"is a bundle of schema version {version!r}, this clickprism reads {SCHEMA}"
            raise DataError(problem, file=file, remedy="Create it again: clickprism model bundle RUN --out bundle")
        manifest = msgspec.json.decode(text, type=BundleManifest)
    except (msgspec.DecodeError, SettingError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"is not the manifest of a bundle ({error})", file=file, remedy=REMEDY) from None
    if len(manifest.feature_names) > MOST_FEATURES or len(set(manifest.feature_names)) < len(manifest.feature_names):
        raise DataError("has too many features, or one twice", file=file, remedy=REMEDY)
    return manifest


VERSION_DIGITS: Final = 16


@final
@dataclass(frozen=True, eq=False)
class Bundle:
    """A folder that was verified.

    Attributes:
        folder: The folder.
        manifest: What the bundle is.
        version: First 16 hexadecimal digits of the SHA-256 of manifest.json, which has the hashes of all other files.
    """

    folder: Path
    manifest: BundleManifest
    version: str

    @classmethod
    def load(cls, folder: Path | str) -> Bundle:
        """Verify a folder: it has the files that the manifest names and no others, each with its SHA-256."""
        place = Path(folder)
        try:
            place = place.resolve(strict=True)
            found = set(os.listdir(place))
            if MANIFEST not in found:
                remedy = "Create one with: clickprism model bundle RUN --out bundle"
                parts = ("bundle", "bundles/*", "deployment/bundles/*")  # of a run of `auto`, a deployment, a project
                manifests = [each for part in parts for each in place.glob(f"{part}/{MANIFEST}")]
                inside = [Path(folder, each.parent.relative_to(place)) for each in manifests]
                if len(inside) == 1:
                    remedy = f"Did you mean {inside[0]}?"
                elif inside:
                    remedy = f"Name one of the bundles in {inside[0].parent}"
                raise DataError(f"is not a bundle: it has no {MANIFEST}", file=folder, remedy=remedy)
        except FileNotFoundError:
            remedy = "Create it with: clickprism model bundle RUN --out bundle"
            raise DataError("does not exist", file=folder, remedy=remedy) from None
        except OSError as error:
            remedy = "Name a folder written by: clickprism model bundle"
            raise DataError(f"is not a bundle ({error.strerror})", file=folder, remedy=remedy) from None
        with opened(place, MANIFEST) as file:
            text = file.read()
        manifest = read_manifest(text, place / MANIFEST)
        for name in manifest.files:
            if not NAMES.fullmatch(name):
                remedy = "A bundle has only weights, JSON files and the model card"
                raise DataError(f"names a file that no bundle has: {name[:80]!r}", file=place / MANIFEST, remedy=remedy)
        for name in sorted(found ^ {MANIFEST, *manifest.files}):
            if name in found:
                raise DataError("is not named in the manifest of the bundle", file=place / name, remedy=ONLY)
            raise DataError("is missing from the bundle", file=place / name, remedy=REMEDY)
        for name, wanted in manifest.files.items():
            if _digest(place, name) != wanted:
                raise _changed(place / name)
        return cls(place, manifest, hashlib.sha256(text).hexdigest()[:VERSION_DIGITS])

    def read(self, name: str) -> bytes:
        """Return the bytes of a file of the manifest; they are checked again, so that no change in between is read."""
        if name not in self.manifest.files:
            raise DataError(f"has no {name}", file=self.folder, remedy=REMEDY)
        with opened(self.folder, name) as file:
            content = file.read()
        if hashlib.sha256(content).hexdigest() != self.manifest.files[name]:
            raise _changed(self.folder / name)
        return content

    def tables(self) -> list[Table]:
        """Return one row for each fact."""
        own = self.manifest
        click_vector = f" and a click vector of {len(own.click_fields)} values" if own.click_fields else ""
        rows = [
            ["name", own.name],
            ["version", self.version],
            ["ranker", own.ranker],
            ["input", f"{len(own.feature_names)} features{click_vector}"],
            *[[name, f"{value:.4f}"] for name, value in own.metrics.items()],
            *([] if own.scope is None else [["scope", own.scope.sentence()]]),
            *[["note", note] for note in own.notes],
            ["files", f"{len(own.files)}, each with its SHA-256"],
        ]
        return [Table("", ["bundle", str(self.folder)], rows)]

    def path(self, name: str) -> Path:
        """Return the path of a file."""
        return self.folder / name

    def __repr__(self) -> str:
        return f"Bundle({self.manifest.name or self.folder.name!r}, {self.manifest.kind}, version {self.version})"


def pack(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return arrays as a safetensors file."""
    return bytes(_numpy().save({name: np.ascontiguousarray(values) for name, values in arrays.items()}))


def read_arrays(bundle: Bundle, name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file of a bundle."""
    numpy, content = _numpy(), bundle.read(name)
    try:
        found: dict[str, NDArray[Any]] = numpy.load(content)
    except Exception as error:
        raise DataError(f"is not a safetensors file ({error})", file=bundle.path(name)) from None
    return found


def _numpy() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise MissingExtraError("serve", "a bundle") from None
    return safetensors.numpy
