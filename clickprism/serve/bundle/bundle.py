"""A bundle: a ranker as a folder that can be copied, verified and served, and that never changes.

`manifest.json` says what it is and names every file with its SHA-256. Loading checks them all, refuses what it does not
know, and runs nothing. The hashes detect damage; they do not prove where a bundle came from, so serve those of people
you trust. `clickprism.serve.scoring.scorer` scores documents with it; docs/reference/serving.md has the format.
"""

from __future__ import annotations

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

from clickprism._util.tables import Table, to_builtin
from clickprism.errors import DataError, MissingExtraError, SettingError
from clickprism.serve.scoring.evidence import Evidence

MANIFEST: Final = "manifest.json"
MB: Final = 1 << 20
NAMES: Final = re.compile(r"(?!manifest\.)[a-z][a-z0-9_-]{0,60}\.(?:onnx|safetensors|txt|json|svg)|MODEL_CARD\.md")
LARGEST: Final = {  # pictures are of bundles of version 0.1, and are not read
    ".onnx": 2048 * MB - 1,
    ".safetensors": 4096 * MB,
    ".txt": 1024 * MB,
    ".json": 256 * MB,
    ".md": 4 * MB,
    ".svg": 8 * MB,
}
LARGEST_MANIFEST: Final = 16 * MB
LARGEST_HEADER: Final = 16 * MB
MOST_FILES: Final = 64
START: Final = {".txt": (b"tree\n",), ".svg": (b"<?xml", b"<svg"), ".json": (b"{", b"[")}
ANEW: Final = "Create the bundle again with clickprism model bundle, or copy it again from its source"
ONLY: Final = "A bundle holds what its manifest names and nothing else: move the file away"


def listed(folder: Path) -> set[str]:
    """Return the names of the files of a folder; anything but regular files is an error."""
    names: set[str] = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink() or not entry.is_file(follow_symlinks=False):
                problem = "is a link, which no bundle has" if entry.is_symlink() else "is not a regular file"
                raise DataError(problem, file=folder / entry.name, remedy=ONLY)
            names.add(entry.name)
            if len(names) > MOST_FILES:
                raise DataError(f"has more than {MOST_FILES} files", file=folder, remedy=ONLY)
    return names


def opened(folder: Path, name: str) -> BufferedReader:
    """Open a regular file of a folder; links are not followed, pipes not waited for, and large files not opened."""
    largest = LARGEST_MANIFEST if name == MANIFEST else LARGEST[os.path.splitext(name)[1]]
    try:
        handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=folder / name, remedy=ANEW) from None
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode) or about.st_size > largest:
        os.close(handle)
        problem = f"is larger than {largest:,} bytes" if stat.S_ISREG(about.st_mode) else "is not a regular file"
        raise DataError(problem, file=folder / name, remedy=ANEW)
    return os.fdopen(handle, "rb")


def _digest(folder: Path, name: str) -> str:
    """Return the SHA-256 of a file; refuse a file that is not what its name says, such as a pickle."""
    with opened(folder, name) as opened_file:
        first, size, ending = opened_file.read(MB), os.fstat(opened_file.fileno()).st_size, os.path.splitext(name)[1]
        header = int.from_bytes(first[:8], "little")
        problem = None
        if ending == ".safetensors":
            fits = size >= 10 and header <= min(LARGEST_HEADER, size - 8) and first[8:9] == b"{"
            problem = None if fits else "is not a safetensors file"
        elif not first.startswith(START.get(ending, (b"",))):
            problem = f"does not begin as a {ending} file of a bundle"
        elif ending == ".svg" and re.search(rb"<\s*script|javascript:|\bon[a-z]+\s*=", first, re.IGNORECASE):
            problem = "is a picture with a script"
        if problem is not None:
            raise DataError(problem, file=folder / name, remedy=ANEW)
        opened_file.seek(0)
        return hashlib.file_digest(opened_file, "sha256").hexdigest()


def _changed(file: Path) -> DataError:
    return DataError("was changed after the bundle was made: its SHA-256 is another", file=file, remedy=ANEW)


SCHEMA: Final = 1
NEWER: Final = ("scope", "evidence")
"""Fields of the manifest that version 0.1 did not have."""
MOST_FEATURES: Final = 1_000_000
MOST_DOCUMENTS: Final = 1_000_000
LONGEST_REASON: Final = 1000

Missing: TypeAlias = Literal["mean", "own", "refuse"]
Role: TypeAlias = Literal["main", "naive", "imputation"]


@final
class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One ranker of a bundle.

    Attributes:
        kind: linear, mlp, attention, lambdamart, approximation or cross-encoder.
        settings: Settings of the ranker, as its settings class takes them.
        method: Name and settings of the method that trained it.
        normaliser: Kind of the normaliser and the features that it keeps; None if features are used as they are.
        missing: What replaces a missing feature (NaN): "mean" of the training data, "own" if the ranker handles it, or
            "refuse" for an error.
        calibration: Slope and intercept that turn scores into log odds of a click; None without them.
    """

    kind: str
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    method: dict[str, Any] = msgspec.field(default_factory=dict)
    normaliser: dict[str, Any] | None = None
    missing: Missing = "refuse"
    calibration: tuple[float, float] | None = None


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
        schema_version: Version of the format, 1.
        name: Name for people.
        kind: Kind of the ranker; this, `method`, `settings`, `normaliser` and `missing` as in `Part`.
        feature_names: Names of the features, in order; empty for a ranker that has none.
        click_fields: Names of the values of a click vector, in order; empty for a ranker that takes none.
        imputation: What estimates a pair without clicks, of an approximation; None for the mean of training.
        naive: A ranker on the same features that was trained on raw clicks, for comparison.
        observation: How often each position is observed, relative to position 1; empty without a curve.
        data: What it was trained on: a name, a fingerprint, sizes.
        metrics: Value of each measure.
        created: When it was made (UTC).
        clickprism: Version of clickprism that made it.
        notes: Notes for the model card.
        scope: Which documents of a query the ranker may reorder; None if the bundle does not say.
        evidence: How scores are joined with the clicks on a pair; None to serve the ranker's score alone.
        files: SHA-256 of every file but the manifest.
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
    imputation: Part | None = None
    naive: Part | None = None
    observation: tuple[float, ...] = ()
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    created: str = ""
    clickprism: str = ""
    notes: tuple[str, ...] = ()
    scope: Scope | None = None
    evidence: Evidence | None = None

    @property
    def main(self) -> Part:
        """The main ranker."""
        return Part(self.kind, self.settings, self.method, self.normaliser, self.missing)

    def part(self, role: Role) -> Part:
        """Return the ranker of this role; an error if the bundle has none."""
        found = self.main if role == "main" else self.naive if role == "naive" else self.imputation
        if found is None:
            raise DataError(f"the bundle {self.name!r} has no {role} ranker", remedy=f"Make one with --{role}")
        return found

    def plain(self) -> dict[str, Any]:
        """Return the manifest as JSON holds it; newer fields are omitted if empty, so that older versions read it."""
        values: dict[str, Any] = msgspec.to_builtins(self, enc_hook=to_builtin)
        return {name: value for name, value in values.items() if value is not None or name not in NEWER}


class _Version(msgspec.Struct):
    schema_version: Any = None


def read_manifest(text: bytes, file: Path) -> BundleManifest:
    """Return the manifest in a file; an unknown name or a value of another type is an error."""
    try:
        version = msgspec.json.decode(text, type=_Version).schema_version
        if version != SCHEMA:
            problem = f"is a bundle of schema version {version!r}, this clickprism reads {SCHEMA}"
            raise DataError(problem, file=file, remedy="Use the clickprism that made it, or a newer one")
        manifest = msgspec.json.decode(text, type=BundleManifest)
    except (msgspec.DecodeError, SettingError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"is not the manifest of a bundle ({error})", file=file, remedy=ANEW) from None
    if len(manifest.feature_names) > MOST_FEATURES or len(set(manifest.feature_names)) < len(manifest.feature_names):
        raise DataError("has too many features, or one twice", file=file, remedy=ANEW)
    return manifest


VERSION_DIGITS: Final = 16
SHARED: Final = ("sample.json", "examples.json", "diagnosis.json", "MODEL_CARD.md")
ROLES: Final[tuple[Role, ...]] = ("main", "naive", "imputation")


@final
@dataclass(frozen=True)
class BundleFacts:
    """What a bundle contains, in short; see `BundleManifest`."""

    bundle: Path
    version: str
    name: str
    kind: str
    method: str | None
    features: int
    click_fields: int
    naive: bool
    metrics: Mapping[str, float]
    notes: tuple[str, ...]
    scope: Scope | None
    files: Mapping[str, str]

    def tables(self) -> list[Table]:
        """Return one row for each fact."""
        click_vector = f" and a click vector of {self.click_fields} values" if self.click_fields else ""
        rows = [
            ["name", self.name],
            ["version", self.version],
            ["ranker", f"{self.kind}, trained by {self.method or 'an unknown method'}"],
            ["input", f"{self.features} features{click_vector}"],
            ["ranker on raw clicks", "included for comparison" if self.naive else "not included"],
            *[[name, f"{value:.4f}"] for name, value in self.metrics.items()],
            *([] if self.scope is None else [["scope", self.scope.sentence()]]),
            *[["note", note] for note in self.notes],
            ["files", f"{len(self.files)}, each with its SHA-256"],
        ]
        return [Table("", ["bundle", str(self.bundle)], rows)]


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
            if MANIFEST not in os.listdir(place):
                remedy = "Create one with: clickprism model bundle RUN --out bundle"
                if (place / "bundle" / MANIFEST).is_file():
                    remedy = f"Did you mean {Path(folder) / 'bundle'}?"
                raise DataError(f"is not a bundle: it has no {MANIFEST}", file=folder, remedy=remedy)
            found = listed(place) - {MANIFEST}
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
                remedy = "Its files are beside it: weights, JSON and the model card"
                raise DataError(f"names a file that no bundle has: {name[:80]!r}", file=place / MANIFEST, remedy=remedy)
        for name in sorted(found ^ set(manifest.files)):
            problem, remedy = ("is missing from the bundle", ANEW)
            if name in found:
                problem, remedy = ("is not named in the manifest of the bundle", ONLY)
            raise DataError(problem, file=place / name, remedy=remedy)
        for name, wanted in manifest.files.items():
            if _digest(place, name) != wanted:
                raise _changed(place / name)
        return cls(place, manifest, hashlib.sha256(text).hexdigest()[:VERSION_DIGITS])

    def read(self, name: str) -> bytes:
        """Return the bytes of a file of the manifest; they are checked again, so that no change in between is read."""
        if name not in self.manifest.files:
            raise DataError(f"has no {name}", file=self.folder, remedy=ANEW)
        with opened(self.folder, name) as file:
            content = file.read()
        if hashlib.sha256(content).hexdigest() != self.manifest.files[name]:
            raise _changed(self.folder / name)
        return content

    def read_part(self, role: Role) -> dict[str, bytes]:
        """Return all files of one of the rankers, by their names without the role."""
        others = tuple(f"{other}-" for other in ROLES if other != role)
        start = file_name(role, "")
        mine = [name for name in self.manifest.files if name.startswith(start) and not name.startswith(others)]
        return {name.removeprefix(start): self.read(name) for name in mine if name not in SHARED and ".svg" not in name}

    def facts(self) -> BundleFacts:
        """Return what the bundle contains."""
        own = self.manifest
        return BundleFacts(
            bundle=self.folder,
            version=self.version,
            name=own.name,
            kind=own.kind,
            method=own.method.get("name"),
            features=len(own.feature_names),
            click_fields=len(own.click_fields),
            naive=own.naive is not None,
            metrics=own.metrics,
            notes=own.notes,
            scope=own.scope,
            files=own.files,
        )

    def path(self, name: str) -> Path:
        """Return the path of a file."""
        return self.folder / name

    def __repr__(self) -> str:
        return f"Bundle({self.manifest.name or self.folder.name!r}, {self.manifest.kind}, version {self.version})"


def file_name(role: Role, name: str) -> str:
    """Return the name of a file of a ranker; files of the main one have no prefix.

    >>> file_name("main", "network.onnx"), file_name("naive", "network.onnx")
    ('network.onnx', 'naive-network.onnx')
    """
    return name if role == "main" else f"{role}-{name}"


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
