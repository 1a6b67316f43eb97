"""One world: what every criterion says without a label, and what every candidate reaches by the true grades."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clickprism._util.files import write_file
from clickprism.simulation.worlds import WorldSettings, make_world
from reproduce.choice.cache import STUDIED, trained
from reproduce.choice.criteria import criteria


def row_of(settings: WorldSettings, out: Path, methods: Sequence[str] = STUDIED) -> dict[str, Any]:
    """The row of a world, from its file or made now; its candidates are kept beside it."""
    file = out / f"{settings.seed}.json"
    if file.is_file():
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return kept
    world = make_world(settings)
    candidates = trained(world, out / f"{settings.seed}.npz", methods)
    begun = time.process_time()
    told = criteria(candidates, world.logged)
    spent = candidates.seconds + time.process_time() - begun
    row = {
        "seed": settings.seed,
        "world": asdict(settings),
        "ndcg": dict(candidates.ndcg),
        "criteria": {name: {"values": dict(each.values), "chosen": each.chosen} for name, each in told.items()},
        "cpu_seconds": round(spent, 1),
    }
    write_file(file, json.dumps(row, indent=1))
    return row
