"""A bundle: a ranker as a folder that can be copied, checked and served, and that never changes.

`manifest.json` says what it is and names every file with its SHA-256. Loading checks them all, refuses what it does not
know, and runs nothing. The hashes find damage; they do not prove where a bundle came from, so serve those of people you
trust. `clickprism.serve.scorer` scores by one; docs/serving.md has the format.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, final

from clickprism._util.files import atomic_folder, write_errors
from clickprism._util.tables import Table
from clickprism.errors import DataError
from clickprism.serve import bundle_files as files
from clickprism.serve.bundle_manifest import SCHEMA, BundleManifest, Missing, Part, Role, Scope, read_manifest

__all__ = ["Bundle", "BundleFacts", "BundleManifest", "Missing", "Part", "Role", "Scope", "file_name", "write_bundle"]
VERSION_DIGITS: Final = 16
SHARED: Final = ("sample.json", "examples.json", "MODEL_CARD.md")
ROLES: Final[tuple[Role, ...]] = ("main", "naive", "imputation")

if TYPE_CHECKING:
    from clickprism.model import Model
    from clickprism.rankers.cross_encoder import CrossEncoderNetwork
    from clickprism.relevance.approximation import Approximation
    from clickprism.serve.language_bundle import JudgedTexts
    from clickprism.serve.parts import Contents
    from clickprism.training.calibration import Calibration
    from clickprism.types import Float64


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
            if files.MANIFEST not in os.listdir(place):
                remedy = "Create one with: clickprism model bundle RUN --out bundle"
                if (place / "bundle" / files.MANIFEST).is_file():
                    remedy = f"Did you mean {Path(folder) / 'bundle'}?"
                raise DataError(f"is not a bundle: it has no {files.MANIFEST}", file=folder, remedy=remedy)
            found = files.listed(place) - {files.MANIFEST}
        except FileNotFoundError:
            remedy = "Create it with: clickprism model bundle RUN --out bundle"
            raise DataError("does not exist", file=folder, remedy=remedy) from None
        except OSError as error:
            remedy = "Name a folder written by: clickprism model bundle"
            raise DataError(f"is not a bundle ({error.strerror})", file=folder, remedy=remedy) from None
        with files.opened(place, files.MANIFEST) as file:
            text = file.read()
        manifest = read_manifest(text, place / files.MANIFEST)
        _check_set(place, found, manifest.files)
        for name, wanted in manifest.files.items():
            if files.digest(place, name) != wanted:
                raise files.changed(place / name)
        return cls(place, manifest, hashlib.sha256(text).hexdigest()[:VERSION_DIGITS])

    def read(self, name: str) -> bytes:
        """The bytes of a file, checked against their hash once more; `name` must be in the manifest."""
        if name not in self.manifest.files:
            raise DataError(f"has no {name}", file=self.folder, remedy=files.ANEW)
        return files.content(self.folder, name, self.manifest.files[name])

    def read_part(self, role: Role) -> dict[str, bytes]:
        """All files of one of its rankers, by the names that they have there; pictures and the like are of none."""
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


def write_bundle(
    folder: Path | str,
    model: Model | Approximation | CrossEncoderNetwork,
    *,
    name: str = "",
    feature_names: Sequence[str] = (),
    imputation: Model | CrossEncoderNetwork | Literal["stored"] | None = None,
    calibration: Calibration | None = None,
    naive: Model | None = None,
    observation: Float64 | None = None,
    data: Mapping[str, Any] | None = None,
    metrics: Mapping[str, float] | None = None,
    figures: Mapping[str, tuple[str, str]] | None = None,
    notes: Sequence[str] = (),
    scope: Scope | None = None,
    examples: bytes | None = None,
    created: datetime | None = None,
    judged: JudgedTexts | None = None,
    int8: bool = True,
    replace: bool = False,
) -> Bundle:
    """Make a bundle: beside its place first, checked there, then renamed; nothing is there if anything fails.

    Args:
        folder: that is to be the bundle.
        model: a ranker on features, an approximation, or a cross-encoder.
        name: for people; by default that of the folder.
        feature_names: of its features, in order; by default feature_1, feature_2, ...
        imputation: of an approximation: a ranker on features with its calibration; a cross-encoder; "stored", a
            feature named imputed, such as of the online store; None imputes the mean of training.
        calibration: of an imputation by features.
        naive: a ranker on the same features that took clicks for relevance.
        observation: by position, relative to the first.
        data: what it was trained on.
        metrics: what it reached.
        figures: of the model card: caption and SVG, by name.
        notes: what a reader should know.
        scope: which documents of a query the ranker may reorder; the service enforces it. None says nothing, and does
            not limit the service.
        examples: the file of the page.
        created: when; by default now.
        judged: pairs of texts with grades, by which a language model in int8 is judged.
        int8: whether a language model may be served in int8.
        replace: an older bundle at the same place.
    """
    from clickprism.serve.check import Original, check_copy
    from clickprism.serve.model_card import model_card
    from clickprism.serve.parts import contents_of

    place = Path(os.path.abspath(folder))
    known = _is_bundle(place)
    if place.exists() and not (replace and known):
        remedy = "Choose another folder, or replace it with --replace" if known else "Choose another folder"
        raise DataError("exists already", file=folder, remedy=remedy)
    served, read = _served(model, judged, int8=int8)
    imputing, also = _served(imputation, judged, int8=int8)
    original = Original(served, imputing, calibration, naive)
    main = contents_of(served)
    beside: dict[Role, Contents] = {}
    if imputing is not None:
        beside["imputation"] = contents_of(imputing, role="imputation", calibration=calibration)
    if naive is not None:
        beside["naive"] = contents_of(naive, role="naive")
    contents = {**main.files, "sample.json": original.sample()}
    for each in beside.values():
        contents |= each.files
    contents |= {f"{key}.svg": picture.encode() for key, (_, picture) in (figures or {}).items()}
    if examples is not None:
        contents["examples.json"] = examples
    manifest = BundleManifest(
        SCHEMA,
        main.part.kind,
        files={},
        name=name or place.name,
        method=main.part.method,
        settings=main.part.settings,
        feature_names=original.feature_names(feature_names),
        normaliser=main.part.normaliser,
        missing=main.part.missing,
        click_fields=original.click_fields,
        imputation=beside["imputation"].part if "imputation" in beside else None,
        naive=beside["naive"].part if "naive" in beside else None,
        observation=() if observation is None else tuple(float(value) for value in observation),
        data=dict(data or {}),
        metrics={key: float(value) for key, value in (metrics or {}).items()},
        created=(created or datetime.now(UTC)).isoformat(timespec="seconds"),
        clickprism=version("clickprism"),
        notes=(*notes, *read, *also),
        scope=scope,
    )
    captions = {f"{key}.svg": caption for key, (caption, _) in (figures or {}).items()}
    contents["MODEL_CARD.md"] = model_card(manifest, captions).encode()
    hashes = {key: hashlib.sha256(content).hexdigest() for key, content in sorted(contents.items())}
    manifest = dataclasses.replace(manifest, files=hashes)
    contents[files.MANIFEST] = json.dumps(manifest.plain(), indent=1, ensure_ascii=False).encode()
    with write_errors(folder), atomic_folder(place) as draft:
        for key, content in contents.items():
            (draft / key).write_bytes(content)
        check_copy(Bundle.load(draft), original)
    return Bundle.load(place)


def _served(model: Any, judged: JudgedTexts | None, *, int8: bool) -> tuple[Any, tuple[str, ...]]:
    """A ranker as it will be served, and what a reader should know of that; only a language model is another."""
    from clickprism.serve.parts import cross_encoder

    reader = cross_encoder(model)
    if reader is None:
        return model, ()
    from clickprism.serve.language_bundle import serve_language

    served = serve_language(model, judged=judged, int8=int8)
    return served, getattr(served, "notes", ("The language model is served by PyTorch: it is no BERT.",))


def file_name(role: Role, name: str) -> str:
    """The name of a file of a ranker: those of the main one are plain.

    >>> file_name("main", "network.onnx"), file_name("naive", "network.onnx")
    ('network.onnx', 'naive-network.onnx')
    """
    return name if role == "main" else f"{role}-{name}"


def _is_bundle(folder: Path) -> bool:
    """Whether a folder holds a bundle and nothing else, whole or damaged; it is no one's loss if it is replaced."""
    try:
        found = set(files.listed(folder))
        with files.opened(folder, files.MANIFEST) as file:
            manifest = read_manifest(file.read(), folder / files.MANIFEST)
    except (DataError, OSError):
        return False
    return found <= {files.MANIFEST, *manifest.files}


def _check_set(folder: Path, found: set[str], named: Mapping[str, str]) -> None:
    for name in named:
        files.check_name(name, file=folder / files.MANIFEST)
    for name in sorted(found - set(named)):
        raise DataError("is not named in the manifest of the bundle", file=folder / name, remedy=files.ONLY)
    for name in sorted(set(named) - found):
        raise DataError("is missing from the bundle", file=folder / name, remedy=files.ANEW)
