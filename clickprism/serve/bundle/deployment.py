"""A deployment: the folder that `clickprism model promote` fills and `clickprism serve` follows.

    DEPLOYMENT/bundles/<version>/   verified copies, which never change
    DEPLOYMENT/current.json         which of them answers, and which did before

The pointer is replaced in one step after the new bundle is copied, verified and warm, so that a reader finds the old
model or the new one. A rollback points to the one before.
"""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, final

import msgspec

from clickprism._util.files import DRAFT, atomic_folder, create_folder, lock, write_file
from clickprism._util.tables import Table
from clickprism.errors import DataError, SettingError, UnsupportedError
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.bundle.untrusted import verify_apart

POINTER: Final = "current.json"
KEPT: Final = 10
"""Number of bundles that are kept for a rollback by default, besides the current one."""
_VERSION = re.compile(r"[0-9a-f]{16}")


@final
class Pointer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `current.json` says.

    Attributes:
        version: Version of the current bundle.
        since: When it became the current one (UTC).
        previous: Versions before it, newest first.
        share: Share of the requests that it answers together with another bundle, in a rollout.
        format: Format of this file.
    """

    version: str
    since: str
    previous: tuple[str, ...] = ()
    share: float = 1.0
    format: Literal[1] = 1

    def __post_init__(self) -> None:
        for version in (self.version, *self.previous):
            if not _VERSION.fullmatch(version):
                raise ValueError(f"{version[:80]!r} is not a version of a bundle")


@final
@dataclass(frozen=True)
class Promotion:
    """The version that is current after a promotion or a rollback, and the one before (None if there was none)."""

    deployment: Path
    version: str
    before: str | None
    changed: bool

    def tables(self) -> list[Table]:
        """Return both versions."""
        rows = [["current version", self.version], ["version before", self.before or "none"]]
        return [Table("" if self.changed else "Nothing changed.", ["deployment", str(self.deployment)], rows)]


@final
@dataclass(frozen=True)
class DeploymentStatus:
    """The current bundle of a deployment, and the versions that a rollback can return to, newest first."""

    deployment: Path
    version: str
    since: str
    bundle: Bundle
    previous: tuple[str, ...]

    def tables(self) -> list[Table]:
        """Return the current bundle and the previous versions."""
        manifest = self.bundle.manifest
        rows = [
            ["current version", self.version],
            ["since", self.since],
            ["bundle", f"{manifest.name}: {manifest.ranker}"],
            *([] if manifest.scope is None else [["scope", manifest.scope.sentence()]]),
            ["previous versions", ", ".join(self.previous) or "none"],
        ]
        return [Table("", ["deployment", str(self.deployment)], rows)]


@final
@dataclass(frozen=True)
class Deployment:
    """A folder with a pointer to the current bundle."""

    folder: Path

    @property
    def pointer_file(self) -> Path:
        """File of the pointer."""
        return self.folder / POINTER

    def exists(self) -> bool:
        """Return whether a bundle was promoted to the folder."""
        return self.pointer_file.exists()

    def pointer(self) -> Pointer:
        """Return the pointer to the current bundle; raise DataError if there is none or it is damaged."""
        command = f"clickprism model promote BUNDLE --to {self.folder}"
        try:
            return msgspec.json.decode(self.pointer_file.read_bytes(), type=Pointer)
        except FileNotFoundError:
            problem = "is not a deployment: no bundle was promoted to it"
            raise DataError(problem, file=self.folder, remedy=f"Run: {command}") from None
        except msgspec.DecodeError as error:
            problem, remedy = f"is not the pointer of a deployment ({error})", f"Delete the file, then run: {command}"
            raise DataError(problem, file=self.pointer_file, remedy=remedy) from None

    def current(self) -> Bundle:
        """Return the current bundle, after a check of its files."""
        return self.bundle(self.pointer().version)

    def status(self) -> DeploymentStatus:
        """Return which bundle is current, after a check of its files."""
        now = self.pointer()
        return DeploymentStatus(self.folder, now.version, now.since, self.bundle(now.version), now.previous)

    def bundle(self, version: str) -> Bundle:
        """Return the bundle of a version, after a check of its files."""
        found = Bundle.load(self.folder / "bundles" / version)
        if found.version != version:
            problem = f"holds version {found.version}, not that of its name"
            raise DataError(problem, file=found.folder, remedy="Delete the folder and promote the bundle again")
        return found

    def promote(self, bundle: Path | str, *, keep: int = KEPT, share: float = 1.0) -> Promotion:
        """Copy a bundle, verify and warm the copy, then point to it; the old one answers until then.

        Args:
            bundle: Folder of the bundle.
            keep: Number of previous bundles to keep for a rollback; older ones are deleted.
            share: Share of the requests, in the deployment of a rollout.
        """
        if keep < 0:
            raise SettingError("keep", keep, "be 0 or more")
        source = Bundle.load(bundle)
        create_folder(self.folder)
        with lock(self.folder):
            old = self.pointer().version if self.exists() else None
            self._copy(source)
            verify_apart(self.bundle(source.version).folder)
            self.point(source.version, keep=keep, share=share)
        return Promotion(self.folder, source.version, old, source.version != old)

    def rollback(self) -> Promotion:
        """Verify and warm the previous bundle, then point to it; another rollback goes further back."""
        self.pointer()  # an error if nothing was promoted
        with lock(self.folder):
            now = self.pointer()
            if not now.previous:
                remedy = f"Promote another one: clickprism model promote BUNDLE --to {self.folder}"
                raise UnsupportedError("has no previous bundle to roll back to", file=self.folder, remedy=remedy)
            verify_apart(self.bundle(now.previous[0]).folder)
            self._write(Pointer(now.previous[0], _now(), now.previous[1:]))
        return Promotion(self.folder, now.previous[0], now.version, True)

    def point(self, version: str, *, keep: int = KEPT, share: float = 1.0) -> None:
        """Point to a bundle of the deployment, in one step, without a check; `promote` checks it first."""
        before = self.pointer() if self.exists() else None
        old = (before.version, *before.previous) if before else ()
        kept = tuple(each for each in old if each != version)[:keep]
        if before is None or (before.version, before.previous, before.share) != (version, kept, share):
            since = before.since if before is not None and before.version == version else _now()
            self._write(Pointer(version, since, kept, share))

    def _copy(self, source: Bundle) -> None:
        """Copy the files that the manifest names, all or none."""
        place = self.folder / "bundles" / source.version
        if place.exists():
            with suppress(DataError):
                self.bundle(source.version)
                return
        with atomic_folder(place) as draft:
            for name in ("manifest.json", *source.manifest.files):
                shutil.copyfile(source.folder / name, draft / name)

    def _write(self, pointer: Pointer) -> None:
        write_file(self.pointer_file, msgspec.json.format(msgspec.json.encode(pointer)) + b"\n")
        self._clean({pointer.version, *pointer.previous})

    def _clean(self, kept: set[str]) -> None:
        """Delete copies that the pointer does not name, such as of a killed promotion; other files stay."""
        for each in (self.folder / "bundles").iterdir():
            ours = _VERSION.fullmatch(each.name) or each.name.endswith(DRAFT)
            if ours and each.name not in kept:
                shutil.rmtree(each, ignore_errors=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
