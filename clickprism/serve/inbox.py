"""Batches of events on disk: what came and is not in the log yet, and the answers to what is.

    LOG/.inbox/<name>.jsonl.gz   a batch, until the log has it; `name` is a hash of its idempotency key
    LOG/.inbox/<name>.json       its answer, without anything of the events themselves, kept for a while

The name stands in the compressed file too, so that batches of other keys are other files, whatever they hold. Whoever
links a name first has it; others find the same batch there, or a conflict.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final

import msgspec

from clickprism._util.files import DRAFT, atomic_file, create_folder, sync, write_file
from clickprism.errors import ClickprismError

FOLDER: Final = ".inbox"
SUFFIX: Final = ".jsonl.gz"
Status: TypeAlias = Literal["accepted", "duplicate", "quarantined", "ignored"]


class EventsRefusedError(ClickprismError):
    """The batch as a whole cannot be taken, now or ever (422)."""


class EventsConflictError(ClickprismError):
    """The idempotency key was used before with other content (409)."""


@final
@dataclass(frozen=True)
class RowAnswer:
    """What became of one row: its number in the batch from 1, and why it does not count where it does not."""

    row: int
    status: Status
    reason: str | None = None


def as_lines(body: bytes) -> bytes:
    r"""A batch as JSON lines: it may be an array of objects, or lines.

    >>> as_lines(b'[{"a":\n 1}, {"b": 2}]')
    b'{"a":  1}\n{"b": 2}'
    """
    text = body.removeprefix(b"\xef\xbb\xbf")
    if not text.lstrip().startswith(b"["):
        return text
    flat = text.replace(b"\n", b" ").replace(b"\r", b" ")
    try:
        return b"\n".join(map(bytes, msgspec.json.decode(flat, type=list[msgspec.Raw])))
    except (msgspec.DecodeError, RecursionError) as error:
        raise EventsRefusedError(f"the batch is not a JSON array: {error}") from None


def row_numbers(lines: bytes) -> list[int]:
    r"""The numbers of the lines that are not blank, from 1.

    >>> row_numbers(b"{}\n\n{}\n")
    [1, 3]
    """
    return [number for number, line in enumerate(lines.split(b"\n"), 1) if line.strip()]


@final
@dataclass(frozen=True)
class Batch:
    """A batch on disk.

    Attributes:
        path: of the file.
        file_id: as the log knows the file: SHA-256 of its bytes.
        digest: SHA-256 of its lines.
        rows: the numbers of its rows.
    """

    path: Path
    file_id: str
    digest: str
    rows: tuple[int, ...]

    @property
    def name(self) -> str:
        """Of the batch."""
        return self.path.name.removesuffix(SUFFIX)


@final
class Inbox:
    """The folder of batches of a log; any number of processes may share it."""

    def __init__(self, log: Path) -> None:
        self.folder = log / FOLDER
        create_folder(self.folder)

    @staticmethod
    def name(key: str) -> str:
        """What batch and answer of a key are called."""
        return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:40]

    def put(self, name: str, lines: bytes) -> Batch:
        """The batch on disk, for sure; an error if another batch has its name."""
        packed = _packed(name, lines)
        path = self.folder / f"{name}{SUFFIX}"
        try:
            with atomic_file(path, replace=False) as draft:
                draft.write_bytes(packed)
        except FileExistsError:
            if path.read_bytes() != packed:
                raise _conflict() from None
            sync(self.folder)  # whoever put it there may not have come to this yet
        return _batch(path, packed, lines)

    def waiting(self) -> list[Batch]:
        """All batches that are here, such as those of a process that died."""
        found = []
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            packed = path.read_bytes()
            found.append(_batch(path, packed, gzip.decompress(packed)))
        return found

    def answer(self, name: str, digest: str) -> list[RowAnswer] | None:
        """The answer that this batch had; None if it had none; an error if another batch had it."""
        try:
            kept: dict[str, Any] = json.loads((self.folder / f"{name}.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        if kept["digest"] != digest:
            raise _conflict()
        others = {row: (status, reason) for row, status, reason in kept["others"]}
        return [RowAnswer(row, *others.get(row, ("accepted", None))) for row in kept["rows"]]

    def keep(self, batch: Batch, answers: list[RowAnswer]) -> None:
        """Keep the answer of a batch that the log has, and let go of the batch.

        It need not be on disk for sure: an answer that is lost is worked out again from the log.
        """
        others = [(each.row, each.status, each.reason) for each in answers if each.status != "accepted"]
        text = json.dumps({"digest": batch.digest, "rows": batch.rows, "others": others})
        write_file(self.folder / f"{batch.name}.json", text, durable=False)
        batch.path.unlink(missing_ok=True)

    def drop(self, batch: Batch) -> None:
        """Let go of a batch that cannot be taken."""
        batch.path.unlink(missing_ok=True)

    def clear(self, *, hours: float) -> None:
        """Let go of answers, and of what was half written, that are older."""
        oldest = time.time() - 3600 * hours
        for pattern in ("*.json", f".*{DRAFT}"):
            for path in self.folder.glob(pattern):
                try:
                    if path.stat().st_mtime < oldest:
                        path.unlink()
                except FileNotFoundError:
                    continue


def _packed(name: str, lines: bytes) -> bytes:
    made = io.BytesIO()
    with gzip.GzipFile(name, "wb", compresslevel=1, fileobj=made, mtime=0) as file:
        file.write(lines)
    return made.getvalue()


def _batch(path: Path, packed: bytes, lines: bytes) -> Batch:
    digest = hashlib.sha256(lines).hexdigest()
    return Batch(path, hashlib.sha256(packed).hexdigest(), digest, tuple(row_numbers(lines)))


def _conflict() -> EventsConflictError:
    return EventsConflictError("the idempotency key was used before, with another batch")
