"""What a run writes: metrics.jsonl, and checkpoints: one file with weights, best weights, optimiser and progress.

A checkpoint holds no random state: the loop draws from the seed and the number of the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_of
from safetensors.torch import save_file

from clickprism._util.files import atomic_file, write_file
from clickprism.debias.base import Learner
from clickprism.errors import DataError, SettingError
from clickprism.training.settings import Plain, Progress, Record

FORMAT = 1
METRICS = "metrics.jsonl"
Weights = dict[str, torch.Tensor]


def copied(module: torch.nn.Module) -> Weights:
    """Return a copy of the weights and buffers."""
    return {key: value.detach().clone() for key, value in module.state_dict().items()}


def save(
    path: Path, learner: Learner, optimiser: torch.optim.Optimizer, *, best: Weights, progress: Progress, plan: Plain
) -> None:
    """Write a checkpoint atomically. `plan` is what a resumed run must have in common."""
    tensors = {f"learner.{key}": value for key, value in learner.state_dict().items()}
    tensors |= {f"best.{key}": value for key, value in best.items()}
    for index, state in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{index}.{key}": torch.as_tensor(value) for key, value in state.items()}
    about = {"progress": json.dumps(asdict(progress)), "plan": json.dumps(plan, sort_keys=True)}
    with atomic_file(path) as draft:
        values = {key: value.detach().clone().contiguous() for key, value in tensors.items()}
        save_file(values, draft, {"format": str(FORMAT), **about})


@dataclass(frozen=True, eq=False)
class Saved:
    """What a checkpoint holds: the progress, the weights at that point, and the best."""

    progress: Progress
    weights: Weights
    best: Weights
    optimiser: Weights

    def put_into(self, learner: Learner, optimiser: torch.optim.Optimizer) -> None:
        """Restore the state of both."""
        learner.load_state_dict(self.weights)
        state = optimiser.state_dict()
        for key, value in self.optimiser.items():
            index, _, name = key.partition(".")
            state["state"].setdefault(int(index), {})[name] = value
        optimiser.load_state_dict(state)


def load(path: Path, *, plan: Plain) -> Saved:
    """Return a checkpoint of the same plan."""
    with usable(path):
        content = path.read_bytes()
        tensors = tensors_of(content)
        metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
        if int(metadata["format"]) != FORMAT:
            raise DataError(f"is a checkpoint of format {metadata['format']}, this version reads {FORMAT}", file=path)
        values = json.loads(metadata["progress"])
        progress = Progress(**values | {"history": [Record(**record) for record in values["history"]]})
        then, now = json.loads(metadata["plan"]), json.loads(json.dumps(plan))
        for key in dict.fromkeys([*now, *then]):
            if then.get(key) != now.get(key):
                must = f"be {then.get(key)!r} as in the checkpoint that is to be resumed"
                raise SettingError(key, now.get(key), must)
        parts = (
            {key.removeprefix(name): value for key, value in tensors.items() if key.startswith(name)}
            for name in ("learner.", "best.", "optimiser.")
        )
        return Saved(progress, *parts)


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Turn an error in the content of a checkpoint into one that names its file."""
    try:
        yield
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError, OSError) as error:
        remedy = "Remove it, or train without --resume"
        raise DataError(f"is not a usable checkpoint ({error})", file=path, remedy=remedy) from None


def start_metrics(out: Path | None, history: Iterable[Record] = ()) -> None:
    """Begin metrics.jsonl, with the history of a resumed run."""
    if out is not None:
        write_file(out / METRICS, "".join(map(_line, history)), durable=False)


def add_metrics(out: Path | None, record: Record) -> None:
    """Add a line: an epoch, or a validation of trees."""
    if out is not None:
        with (out / METRICS).open("a", encoding="utf-8") as file:
            file.write(_line(record))


def _line(record: Record) -> str:
    return json.dumps(asdict(record)) + "\n"
