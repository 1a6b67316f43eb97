"""Bundles that nobody vouches for: a check of trees before LightGBM reads them, and a first run in a child process.

LightGBM trusts its model files: a child that does not exist ends the process, one that leads back never ends. ONNX
graphs are checked by `check_graph`. What passes both is scored once in a child process with limits on memory and time.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from clickprism.errors import ClickprismError, DataError

MEMORY: Final = 4 << 30  # bytes
SHARE: Final = 6
SECONDS: Final = 120
CATEGORICAL: Final = 1
MAX_LEAVES: Final = 1 << 20
OBJECTIVES: Final = ("lambdarank", "custom", "none")


def checked_trees(text: str, *, features: int) -> str:
    """Return a LightGBM model that is safe to read, written again from the checked values.

    Each tree must be a tree, split on existing features, and end in finite numbers; nothing else of the text is kept.
    """
    head, _, rest = text.partition("\nTree=0\n")
    about = _values(head)
    wanted = {"num_class": "1", "num_tree_per_iteration": "1", "max_feature_idx": str(features - 1)}
    for name, value in wanted.items():
        if about.get(name) != value:
            raise DataError(f"has {name}={about.get(name, '')[:40]}, not {value}")
    if about.get("objective", "custom") not in OBJECTIVES:
        raise DataError(f"has the objective {about['objective'][:40]!r}, which no ranker has")
    blocks, end, _ = rest.partition("\nend of trees")
    if not end:
        raise DataError("has no trees, or no end of them")
    trees = []
    for place, block in enumerate(blocks.split("\nTree=")):
        number, _, body = ("0", "", block) if place == 0 else block.partition("\n")
        if number != str(place):
            raise DataError(f"has tree {number[:40]!r} where tree {place} should be")
        try:
            trees.append(f"Tree={place}\n{_tree(_values(body), features)}\n\n")
        except (ValueError, KeyError, OverflowError) as error:
            raise DataError(f"has a broken tree {place}: {error}") from None
    names = " ".join(f"Column_{column}" for column in range(features))
    lines = ["tree", "version=v4", *(f"{name}={value}" for name, value in wanted.items()), "label_index=0"]
    lines += ["objective=lambdarank"] if about.get("objective") == "lambdarank" else []
    lines += [f"feature_names={names}", f"feature_infos={' '.join(['none'] * features)}"]
    return "\n".join([*lines, "", *trees, "end of trees", ""])


def _values(text: str) -> dict[str, str]:
    """Return the values of lines `name=value`; a name that occurs twice is an error."""
    pairs = [line.partition("=")[::2] for line in text.split("\n") if "=" in line]
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DataError("has a name twice")
    return found


def _tree(values: Mapping[str, str], features: int) -> str:
    """Return the lines of a tree whose arrays fit together; LightGBM numbers a child after its parent."""
    leaves = int(values["num_leaves"])
    if not 1 <= leaves <= MAX_LEAVES:
        raise ValueError(f"it has {leaves} leaves")
    if values.get("is_linear", "0") != "0":
        raise ValueError("it has linear models in its leaves")
    splits = leaves - 1
    lines = [f"num_leaves={leaves}"]

    def array(name: str, size: int | None, kind: Any = np.int64) -> NDArray[Any]:
        found = np.array(values[name].split(), dtype=kind)
        if size is not None and len(found) != size:
            raise ValueError(f"{name} has {len(found)} values, not {size}")
        lines.append(f"{name}={values[name]}")
        return found

    if not np.isfinite(array("leaf_value", leaves, np.float64)).all():
        raise ValueError("a leaf is not a number")
    categories = 0
    if splits:
        feature, decision = array("split_feature", splits), array("decision_type", splits)
        threshold = array("threshold", splits, np.float64)
        if feature.min() < 0 or feature.max() >= features:
            raise ValueError("it splits on a feature that does not exist")
        children = np.concatenate([array("left_child", splits), array("right_child", splits)])
        inner, parents = children >= 0, np.tile(np.arange(splits), 2)
        if (children[inner] <= parents[inner]).any() or (children >= splits).any() or (children < -leaves).any():
            raise ValueError("a child leads nowhere, or back")
        if len(np.unique(children)) != len(children):
            raise ValueError("two splits have the same child")
        by_category = (decision & CATEGORICAL) > 0
        if by_category.any():
            ends, words = array("cat_boundaries", None), array("cat_threshold", None)
            categories = len(ends) - 1
            if categories < 1 or ends[0] != 0 or ends[-1] != len(words) or (np.diff(ends) < 0).any():
                raise ValueError("its categories do not fit together")
            if not np.isin(threshold[by_category], np.arange(categories)).all():
                raise ValueError("it splits on categories that do not exist")
    return "\n".join([*lines, f"num_cat={categories}", "is_linear=0", "shrinkage=1"])


def verify_apart(folder: Path | str, *, memory: int = MEMORY, seconds: int = SECONDS) -> None:
    """Verify and warm a bundle in a child process with limits; raise a DataError with what it said, or how it ended.

    Args:
        folder: Folder of the bundle.
        memory: Bytes of address space, besides `SHARE` times the size of the bundle.
        seconds: Seconds of processor time.
    """
    words = [sys.executable, "-m", "clickprism.serve.bundle.untrusted", str(folder), str(memory), str(seconds)]
    done = subprocess.run(words, capture_output=True, check=False, env=_environment())  # noqa: S603 - our own module
    if done.returncode == 0:
        return
    message = done.stdout.decode(errors="replace").strip()
    if not message:
        end = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        problem = f"ended the process that scored its sample ({end}): it is damaged, or asks for too much"
        raise DataError(problem, file=folder, remedy="Do not serve it; create the bundle again")
    raise DataError(message)


def _environment() -> dict[str, str]:
    """Return an environment with one thread for each library, so that address space goes to data and not to stacks."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    path = os.pathsep.join(each for each in sys.path if each)
    return {**os.environ, **dict.fromkeys(names, "1"), "PYTHONPATH": path, "MALLOC_ARENA_MAX": "2"}


def main(folder: Path, memory: int, seconds: int) -> int:
    """Verify a bundle within limits; print what is wrong with it."""
    from clickprism.serve.bundle.bundle import Bundle
    from clickprism.serve.scoring.scorer import open_scorer

    with suppress(ImportError):  # libraries need address space too, so they are loaded before the limit is set
        import onnxruntime  # noqa: F401
        import safetensors.numpy  # noqa: F401
    size = sum(file.stat().st_size for file in folder.iterdir()) if folder.is_dir() else 0
    resource.setrlimit(resource.RLIMIT_AS, (memory + SHARE * size,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        open_scorer(Bundle.load(folder)).warm()
    except ClickprismError as error:
        print(error)
        return 1
    except (MemoryError, RuntimeError) as error:
        print(f"{folder}: cannot be scored within {memory >> 20:,} MB ({type(error).__name__}: {str(error)[:200]})")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
