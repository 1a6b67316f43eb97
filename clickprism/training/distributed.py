"""Several processes that train together, started by `torchrun`.

Every process holds the same data and the same network and computes its part of each batch; the gradients are added up,
so that all take the step that one process alone would take. Without `torchrun` there is one process, and the functions
here do nothing.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from clickprism.errors import DataError, SettingError, TrainingError

if TYPE_CHECKING:
    import torch

TIMEOUT: Final = timedelta(minutes=30)
FINE, FAILED, INTERRUPTED = range(3)
BYE, NEVER = 7, 8
GRACE: Final = 5.0
SHARED: Final = Path("/dev", "shm")
LEAST: Final = 16_384  # numbers from which shared memory is faster than gloo


def place() -> tuple[int, int]:
    """Return the number of this process, from 0, and of all, by the variables that `torchrun` sets.

    >>> place()
    (0, 1)
    """
    if not {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        return 0, 1
    rank, size = _number("RANK", 0), _number("WORLD_SIZE", 1)
    if rank >= size:
        raise SettingError("RANK", rank, f"be below WORLD_SIZE, which is {size}")
    return rank, size


def alone(what: str, *, remedy: str) -> None:
    """Raise SettingError if several processes were started for work that they do not share."""
    if (size := place()[1]) > 1:
        raise SettingError("WORLD_SIZE", size, f"be 1 for {what}, whose work is not shared ({remedy})")


def share_of_threads(threads: int) -> int:
    """Return `threads`, or, if it is 0 and several processes share a machine, a part of its cores."""
    if threads or place()[1] == 1:
        return threads
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // _number("LOCAL_WORLD_SIZE", 1))


class Group:
    """The processes that train together; the first of them writes, shows and validates.

    Attributes:
        rank: Number of this process, from 0.
        size: Number of processes.
        agreed: Whether a Ctrl-C that ends the loop ends it in all of them at the same step.
        near: Whether all are on one machine.
    """

    def __init__(self, rank: int = 0, size: int = 1, handle: Any = None) -> None:
        self.rank = rank
        self.size = size
        self.agreed = size == 1
        self.near = _number("LOCAL_WORLD_SIZE", 0) == size
        self._handle = handle
        self._asked = False
        self._boards: dict[tuple[int, torch.dtype], Board] = {}

    @property
    def first(self) -> bool:
        """Return whether this is the process that writes, shows and validates."""
        return self.rank == 0

    def add(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Return the sum of each tensor over the processes; after Ctrl-C in any, all raise KeyboardInterrupt."""
        if self.size == 1:
            return list(tensors)
        import torch

        asked = tensors[0].new_full((1,), float(self._asked))
        flat = torch.cat([*(tensor.detach().reshape(-1).to(asked.dtype) for tensor in tensors), asked])
        flat = self._sum(flat)
        if float(flat[-1]) > 0:
            self.agreed = True
            raise KeyboardInterrupt
        sums = torch.split(flat[:-1], [tensor.numel() for tensor in tensors])
        return [total.view_as(tensor) for tensor, total in zip(tensors, sums, strict=True)]

    def _sum(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the sum over the processes: through shared memory if all are on one machine, else by gloo."""
        if self.near and flat.numel() >= LEAST:
            key = flat.numel(), flat.dtype
            if key not in self._boards:
                self._boards[key] = Board(self, flat)
            total = self._boards[key].add(flat)
            if total is not None:
                return total
        self._talk(lambda distributed: distributed.all_reduce(flat, group=self._handle))
        return flat

    def copy(self, tensors: Iterable[torch.Tensor]) -> None:
        """Overwrite the tensors of all processes by those of the first."""
        if self.size == 1:
            return
        import torch

        kinds: dict[torch.dtype, list[torch.Tensor]] = {}
        for tensor in tensors:
            kinds.setdefault(tensor.dtype, []).append(tensor)
        for alike in kinds.values():
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in alike])
            self._talk(partial(_broadcast, flat, self._handle))
            for tensor, content in zip(alike, torch.split(flat, [each.numel() for each in alike]), strict=True):
                tensor.detach().copy_(content.view_as(tensor))

    def share(self, make: Callable[[], bytes]) -> bytes:
        """Return what the first process makes, in all of them; if it fails or is interrupted, so do all."""
        if self.size == 1:
            return make()
        import torch

        content, state = b"", FINE
        failure: BaseException | None = None
        if self.first:
            try:
                content = make()
            except KeyboardInterrupt as error:
                state, failure, self.agreed = INTERRUPTED, error, True
            except Exception as error:
                state, failure = FAILED, error
        head = torch.tensor([state, len(content)])
        self.copy([head])
        if failure is not None:
            raise failure
        state, length = head.tolist()
        if state == INTERRUPTED:
            self.agreed = True
            raise KeyboardInterrupt
        if state == FAILED:
            raise TrainingError("the first process failed; its own message says why")
        body = torch.frombuffer(bytearray(content or length + 1), dtype=torch.uint8)[:length]
        self.copy([body])
        return content if self.first else body.numpy().tobytes()

    def first_says(self, measure: Callable[[], float]) -> float:
        """Return what the first process measures, in all of them."""
        return float(self.share(lambda: repr(measure()).encode()))

    def check(self) -> None:
        """Raise KeyboardInterrupt in all processes if Ctrl-C was pressed in any."""
        if self.size > 1:
            import torch

            self.add(torch.zeros(1))

    def wait(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            self._talk(lambda distributed: distributed.barrier(group=self._handle))

    def gather(self, text: str, *, room: int = 256) -> list[str]:
        """Return the texts of all processes, of at most `room` bytes each."""
        import torch

        table = torch.zeros(self.size, room)
        content = text.encode()
        table[self.rank, : len(content)] = torch.tensor(list(content), dtype=table.dtype)
        (table,) = self.add(table)
        return [bytes(map(int, row)).rstrip(b"\0").decode() for row in table.tolist()]

    def check_same(self, facts: Mapping[str, Any]) -> None:
        """Raise DataError in all processes if one was started with other settings or other data."""
        if self.size == 1:
            return
        import torch

        mine = json.loads(json.dumps(facts))
        theirs = json.loads(self.share(lambda: json.dumps(facts).encode()))
        other = [key for key in dict.fromkeys([*theirs, *mine]) if theirs.get(key) != mine.get(key)]
        marks = torch.zeros(self.size)
        marks[self.rank] = len(other)
        (marks,) = self.add(marks)
        if not marks.any():
            return
        remedy = "Start all processes by the same command on the same files"
        if other:
            key = other[0]
            values = f"{key} is {mine.get(key)!r} in process {self.rank} and {theirs.get(key)!r} in the first"
            raise DataError(f"the processes do not train the same: {values}", remedy=remedy)
        numbers = ", ".join(str(rank) for rank in marks.nonzero().flatten().tolist())
        raise DataError(f"process {numbers} does not train what the others train", remedy=remedy)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """End this process at once if another is lost, while LightGBM waits for it.

        Each process watches the next one: it waits for a message that the other sends when it is done, and a lost
        connection comes before it. `GRACE` leaves time for an error of this process's own. Leaving by an error closes
        the connections and ends the watch, since Python aborts if a thread returns from gloo while it exits.
        """
        if self.size == 1:
            yield
            return
        import torch

        done = threading.Event()
        before, after = (self.rank - 1) % self.size, (self.rank + 1) % self.size

        def watch() -> None:
            try:
                _distributed().recv(torch.zeros(1), after, group=self._handle, tag=BYE)
            except RuntimeError as error:
                if not done.wait(GRACE):
                    print(self._lost(error), file=sys.stderr, flush=True)
                    os._exit(TrainingError.exit_code)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
            self._talk(lambda distributed: distributed.send(torch.zeros(1), before, group=self._handle, tag=BYE))
            thread.join()
        finally:
            done.set()
            if thread.is_alive():
                self._close(after)
                thread.join(GRACE)

    def ask(self) -> None:
        """Handle Ctrl-C: leave the loop with the others at their next message, or at once the second time."""
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True

    def _close(self, other: int) -> None:
        """Close all connections of this process, as gloo does when a wait is over time: here for what is never sent."""
        import torch

        with suppress(RuntimeError):
            waiting = _distributed().irecv(torch.zeros(1), other, group=self._handle, tag=NEVER)
            waiting.wait(timedelta(milliseconds=1))

    def _talk(self, say: Callable[[Any], object]) -> None:
        try:
            say(_distributed())
        except RuntimeError as error:
            raise self._lost(error) from None

    def _lost(self, error: RuntimeError) -> TrainingError:
        return TrainingError(
            f"process {self.rank} lost the others ({_first_words(error)}). The one that failed first says why; "
            "start all of them again, with --resume to go on from the checkpoint"
        )


_open: list[Group] = []
_store: list[Any] = []
_count = [0]


@contextmanager
def joined() -> Iterator[Group]:
    """Yield the group of all processes that `torchrun` started, or of this one alone; nested calls share one group.

    Leaving waits for the others, except after an error: then it closes the connections, which the others notice.
    """
    if _open:
        yield _open[-1]
        return
    size = place()[1]
    if size == 1:
        yield Group()
        return
    distributed = _distributed()
    if distributed.is_initialized():
        handle = None if distributed.get_backend() == "gloo" else distributed.new_group(backend="gloo")
        with _listening(Group(distributed.get_rank(), distributed.get_world_size(), handle)) as group:
            yield group
        return
    _connect(*place())
    try:
        with _listening(Group(*place())) as group:
            yield group
            group.wait()
    finally:
        distributed.destroy_process_group()


def _connect(rank: int, size: int) -> None:
    """Make torch's process group by gloo, over the loopback if all processes are on one machine."""
    distributed = _distributed()
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            raise SettingError(name, None, "be set beside RANK and WORLD_SIZE; torchrun does that")
    if _number("LOCAL_WORLD_SIZE", 0) == size and "lo" in {name for _, name in socket.if_nameindex()}:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        if not _store:
            _store.append(next(iter(distributed.rendezvous("env://", rank, size, timeout=TIMEOUT)))[0])
        _count[0] += 1
        store = distributed.PrefixStore(f"clickprism-{_count[0]}", _store[0])
        distributed.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    except (RuntimeError, OSError) as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise TrainingError(
            f"process {rank} of {size} could not reach the others through {where} ({_first_words(error)}). Look "
            "whether all were started, and for the firewall and GLOO_SOCKET_IFNAME"
        ) from None


@contextmanager
def _listening(group: Group) -> Iterator[Group]:
    """Handle Ctrl-C by `Group.ask` while the processes work together."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, lambda *_: group.ask()) if main else None
    _open.append(group)
    try:
        yield group
    finally:
        _open.remove(group)
        if main:
            signal.signal(signal.SIGINT, before)


def addresses(group: Group) -> list[str]:
    """Return a `host:port` of each process that the others can reach, with a free port, for LightGBM."""
    host = "127.0.0.1" if _number("LOCAL_WORLD_SIZE", 1) == group.size else _towards(os.environ["MASTER_ADDR"])
    known = group.gather(host)
    outside = [each for each in known if not each.startswith("127.")]
    if host.startswith("127.") and outside:
        host = _towards(outside[0])
    with socket.socket() as probe:
        probe.bind((host, 0))
        port = probe.getsockname()[1]
    return group.gather(f"{host}:{port}")


def _towards(host: str) -> str:
    """Return the address of this machine on the way to a host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 1))
        return str(probe.getsockname()[0])


def _broadcast(tensor: torch.Tensor, handle: Any, distributed: Any) -> None:
    distributed.broadcast(tensor, 0, group=handle)


def _distributed() -> Any:
    from torch import distributed

    return distributed


def _first_words(error: Exception) -> str:
    """Return the first sentence of gloo's message, without the place in its source."""
    return str(error).splitlines()[0].rpartition("] ")[2].partition(". ")[0] if str(error) else type(error).__name__


def _number(name: str, least: int) -> int:
    text = os.environ.get(name, str(least))
    if not text.isdecimal() or int(text) < least:
        raise SettingError(name, text, f"be a whole number from {least}")
    return int(text)


class Board:
    """Shared memory with a row for each process, twice, used in turn.

    Each process writes its row, waits for all, and adds up the rows in the same order, and so to the same sum. A faster
    process writes into the other table, and waits in between before it can return to this one. The file behind it is
    unlinked once all have opened it, so that nothing is left behind.
    """

    def __init__(self, group: Group, like: torch.Tensor) -> None:
        self.group, self.turn = group, 0
        self.tables: torch.Tensor | None = None
        length = 2 * group.size * like.numel()
        path = group.share(lambda: _reserve(length * like.element_size())).decode()
        if path:
            import torch

            room = torch.from_file(path, shared=True, size=length, dtype=like.dtype)
            self.tables = room.view(2, group.size, like.numel())
            group.wait()
            if group.first:
                Path(path).unlink()

    def add(self, mine: torch.Tensor) -> torch.Tensor | None:
        """Return the sum over the processes, [numbers]; None if there was no room for the board."""
        if self.tables is None:
            return None
        table, self.turn = self.tables[self.turn], 1 - self.turn
        table[self.group.rank] = mine
        self.group.wait()
        return table.sum(0)


def _reserve(size: int) -> bytes:
    """Return the name of a new file with this number of reserved bytes; an empty name if there is no space."""
    handle, path = tempfile.mkstemp(prefix="clickprism-", dir=SHARED if SHARED.is_dir() else None)
    try:
        os.posix_fallocate(handle, 0, size)
    except (OSError, AttributeError):
        Path(path).unlink()
        return b""
    finally:
        os.close(handle)
    return path.encode()
