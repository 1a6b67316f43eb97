"""Sums over the processes of one machine through memory that they share: half the cost of a message."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

SHARED = Path("/dev", "shm")
LEAST = 16_384  # numbers that make a board worth having


class Company(Protocol):
    """What a board needs of the processes: see `clickprism.training.processes.Group`."""

    rank: int
    size: int

    def share(self, make: Callable[[], bytes]) -> bytes:
        """What the first process makes, in all of them."""

    def wait(self) -> None:
        """Wait until all have come here."""


class Board:
    """A table with a row for each process, twice, used in turn.

    Each writes its row, waits for all, and adds up the rows, in the same order and so to the same sum. Whoever is ahead
    writes into the other table, and cannot come back to this one before all have read it, since it waits in between.
    The file behind it has no name once all have opened it: nothing is left behind, whatever ends the processes.
    """

    def __init__(self, company: Company, like: torch.Tensor) -> None:
        self.company, self.turn = company, 0
        self.tables: torch.Tensor | None = None
        length = 2 * company.size * like.numel()
        path = company.share(lambda: _reserve(length * like.element_size())).decode()
        if path:
            import torch

            room = torch.from_file(path, shared=True, size=length, dtype=like.dtype)
            self.tables = room.view(2, company.size, like.numel())
            company.wait()
            if company.rank == 0:
                Path(path).unlink()

    def add(self, mine: torch.Tensor) -> torch.Tensor | None:
        """The sum over the processes, [numbers]; None where there was no room for the board."""
        if self.tables is None:
            return None
        table, self.turn = self.tables[self.turn], 1 - self.turn
        table[self.company.rank] = mine
        self.company.wait()
        return table.sum(0)


def _reserve(size: int) -> bytes:
    """The name of a new file with so many bytes that are there for sure; nothing where there is no room for it."""
    handle, path = tempfile.mkstemp(prefix="clickprism-", dir=SHARED if SHARED.is_dir() else None)
    try:
        os.posix_fallocate(handle, 0, size)
    except (OSError, AttributeError):
        Path(path).unlink()
        return b""
    finally:
        os.close(handle)
    return path.encode()
