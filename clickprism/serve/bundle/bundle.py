"""A bundle: a ranker as a folder that can be copied, checked and served, and that never changes.

`manifest.json` says what it is and names every file with its SHA-256. Loading checks them all, refuses what it does not
know, and runs nothing. The hashes find damage; they do not prove where a bundle came from, so serve those of people you
trust. `clickprism.serve.scoring.scorer` scores by one; docs/serving.md has the format.
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
# pictures are of bundles of version 0.1, and are not read
LARGEST: Final = {
    ".onnx": 2048 * MB - 1,
    ".safetensors": 4096 * MB,
    ".txt": 1024 * MB,
    ".json": 256 * MB,
    ".md": 4 * MB,
    ".svg": 8 * MB,
}
MOST_FILES: Final = 64
LARGEST_MANIFEST: Final = 16 * MB
LARGEST_HEADER: Final = 16 * MB
CHUNK: Final = MB
START: Final = {".txt": (b"tree\n",), ".svg": (b"<?xml", b"<svg"), ".json": (b"{", b"[")}
ANEW: Final = "Create the bundle again with clickprism model bundle, or copy it again from its source"
ONLY: Final = "A bundle holds what its manifest names and nothing else: move the file away"


def listed(folder: Path) -> set[str]:
    """The names of the files of a folder; anything but regular files is an error."""
    names: set[str] = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise DataError("is a link, which a bundle has none of", file=folder / entry.name, remedy=ONLY)
            if not entry.is_file(follow_symlinks=False):
                raise DataError("is not a regular file", file=folder / entry.name, remedy=ONLY)
            names.add(entry.name)
            if len(names) > MOST_FILES:
                raise DataError(f"has more than {MOST_FILES} files", file=folder, remedy=ONLY)
    return names


def check_name(name: str, *, file: Path) -> None:
    """Refuse a name that no file of a bundle has, such as one with a path."""
    if not NAMES.fullmatch(name):
        problem = f"names a file that no bundle has: {name[:80]!r}"
        raise DataError(
            problem, file=file, remedy="Its files stand beside it, and are weights, JSON and the model card"
        )


def digest(folder: Path, name: str) -> str:
    """The SHA-256 of a file that looks as its name says; read in pieces, whatever its size."""
    with opened(folder, name) as file:
        _check_start(folder / name, file.read(CHUNK), os.fstat(file.fileno()).st_size)
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


def content(folder: Path, name: str, wanted: str) -> bytes:
    """A file whole, its own bytes checked against their SHA-256, so that none can change them in between."""
    with opened(folder, name) as file:
        whole = file.read()
    if hashlib.sha256(whole).hexdigest() != wanted:
        raise changed(folder / name)
    return whole


def changed(file: Path) -> DataError:
    """The error of a file that is not what the manifest says."""
    return DataError("was changed after the bundle was made: its SHA-256 is another", file=file, remedy=ANEW)


def opened(folder: Path, name: str) -> BufferedReader:
    """A regular file of the folder, open; no link is followed, no pipe waited for, nothing oversize opened."""
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


def _check_start(file: Path, first: bytes, size: int) -> None:
    """Refuse what is plainly not what its name says, such as a pickle, before anything reads it."""
    ending = file.suffix
    if ending == ".safetensors":
        header = int.from_bytes(first[:8], "little")
        if size < 10 or header > min(LARGEST_HEADER, size - 8) or first[8:9] != b"{":
            raise DataError("is not a safetensors file", file=file, remedy=ANEW)
    if not first.startswith(START.get(ending, (b"",))):
        raise DataError(f"is not what {ending} says", file=file, remedy=ANEW)
    if ending == ".svg" and re.search(rb"<\s*script|javascript:|\bon[a-z]+\s*=", first, re.IGNORECASE):
        raise DataError("is a picture with a script", file=file, remedy=ANEW)


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
        settings: of the ranker, as its settings class takes them.
        method: what trained it: its name and settings.
        normaliser: its kind and the features it keeps; None where features go in as they are.
        missing: what becomes of a feature without a value (NaN): "mean", that of training; "own", the ranker knows;
            "refuse", an error.
        calibration: slope and intercept that make log odds of a click from its scores; None where it has none.
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
        evidence: how scores are joined with the clicks on a pair; None to serve the ranker's score alone.
        files: every file but the manifest, with its SHA-256.
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
        """The ranker itself, without what is beside it."""
        return Part(self.kind, self.settings, self.method, self.normaliser, self.missing)

    def part(self, role: Role) -> Part:
        """The ranker of this role; an error where the bundle has none."""
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
    """The manifest that a file holds; a name it should not have, or a value of another type, is an error."""
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
    """What a bundle contains.

    Attributes:
        bundle: Folder of the bundle.
        version: Version of the bundle.
        name: Name of the bundle.
        kind: Kind of the ranker.
        method: Method that trained the ranker; None if unknown.
        features: Number of features that the ranker reads.
        click_fields: Number of values of a click vector that the ranker reads.
        naive: Whether a ranker trained on raw clicks is included, for comparison.
        metrics: Value of each measure.
        notes: Notes of the model card.
        scope: Which documents of a query the ranker may reorder; None if the bundle does not say.
        files: SHA-256 of each file.
    """

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
    """A folder that was verified; read only.

    Attributes:
        folder: where it is.
        manifest: what it is.
        version: the first 16 hexadecimal digits of the SHA-256 of manifest.json, which has the hashes of all else.
    """

    folder: Path
    manifest: BundleManifest
    version: str

    @classmethod
    def load(cls, folder: Path | str) -> Bundle:
        """Verify a folder: every file is there, is named, is what its hash says, and there is no other."""
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
        _check_set(place, found, manifest.files)
        for name, wanted in manifest.files.items():
            if digest(place, name) != wanted:
                raise changed(place / name)
        return cls(place, manifest, hashlib.sha256(text).hexdigest()[:VERSION_DIGITS])

    def read(self, name: str) -> bytes:
        """The bytes of a file, checked against their hash once more; `name` must be in the manifest."""
        if name not in self.manifest.files:
            raise DataError(f"has no {name}", file=self.folder, remedy=ANEW)
        return content(self.folder, name, self.manifest.files[name])

    def read_part(self, role: Role) -> dict[str, bytes]:
        """All files of one of its rankers, by the names that they have there."""
        others = tuple(f"{other}-" for other in ROLES if other != role)
        start = file_name(role, "")
        mine = [name for name in self.manifest.files if name.startswith(start) and not name.startswith(others)]
        return {name.removeprefix(start): self.read(name) for name in mine if name not in SHARED and ".svg" not in name}

    def facts(self) -> BundleFacts:
        """Return what the bundle contains."""
        manifest = self.manifest
        return BundleFacts(
            bundle=self.folder,
            version=self.version,
            name=manifest.name,
            kind=manifest.kind,
            method=manifest.method.get("name"),
            features=len(manifest.feature_names),
            click_fields=len(manifest.click_fields),
            naive=manifest.naive is not None,
            metrics=manifest.metrics,
            notes=manifest.notes,
            scope=manifest.scope,
            files=manifest.files,
        )

    def path(self, name: str) -> Path:
        """Where a file is."""
        return self.folder / name

    def __repr__(self) -> str:
        return f"Bundle({self.manifest.name or self.folder.name!r}, {self.manifest.kind}, version {self.version})"


def file_name(role: Role, name: str) -> str:
    """The name of a file of a ranker: those of the main one are plain.

    >>> file_name("main", "network.onnx"), file_name("naive", "network.onnx")
    ('network.onnx', 'naive-network.onnx')
    """
    return name if role == "main" else f"{role}-{name}"


def _check_set(folder: Path, found: set[str], named: Mapping[str, str]) -> None:
    for name in named:
        check_name(name, file=folder / MANIFEST)
    for name in sorted(found - set(named)):
        raise DataError("is not named in the manifest of the bundle", file=folder / name, remedy=ONLY)
    for name in sorted(set(named) - found):
        raise DataError("is missing from the bundle", file=folder / name, remedy=ANEW)


def pack(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Arrays as a safetensors file; one without entries is left out."""
    return bytes(_numpy().save({name: np.ascontiguousarray(values) for name, values in arrays.items()}))


def read_arrays(bundle: Bundle, name: str) -> dict[str, NDArray[Any]]:
    """The arrays of a file of a bundle."""
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
