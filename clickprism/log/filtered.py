"""How many rows of some input files the robot rules leave out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from clickprism.log.robots import RobotSettings, unique, verdicts
from clickprism.log.schema import EVENTS

if TYPE_CHECKING:
    from clickprism.log.engine import Engine


def filtered_rows(
    engine: Engine, files: Sequence[str], file_ids: Collection[str], settings: RobotSettings
) -> Counter[str]:
    """The rows of these input files that a rule leaves out, by rule; rows counted as duplicates are not among them.

    Args:
        engine: that runs the rules.
        files: all files of one day of `events`.
        file_ids: of the input files.
        settings: of the rules.
    """
    import ibis

    events = engine.read(files, EVENTS)
    kinds = engine.collect(events.select("kind").distinct())["kind"].to_pylist()
    judged = verdicts(unique(events), settings, kinds=kinds)
    left_out = judged.filter(judged["filter"].notnull()).select("key", "filter")
    ids = engine.memory(pa.table({"file_id": pa.array(sorted(file_ids), pa.string())}))
    ours = events.filter(~events.variant).semi_join(ids, "file_id").select("key")
    found = ours.inner_join(left_out, "key").group_by("filter").aggregate(rows=ibis._.count())
    counts = engine.collect(found).to_pydict()
    return Counter(dict(zip(counts["filter"], counts["rows"], strict=True)))
