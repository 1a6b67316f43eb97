"""§7.8 and Figure 4: the examination model on a simulated raw log, by ingest, sessions and examine."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from reproduce.common.files import key_of

VERSION = 1
DAYS = 7
PER_SEARCH = 2e-3  # seconds


@dataclass(frozen=True)
class ExaminationRun:
    """A log of so many searches, and the model of it."""

    searches: int
    seed: int

    @cached_property
    def key(self) -> str:
        """A hash of all settings."""
        return key_of({"examination": self.searches, "seed": self.seed}, version=VERSION)

    @property
    def log(self) -> tuple[str, int]:
        """Each has its own."""
        return "examination", self.seed

    @property
    def kind(self) -> tuple[str, int]:
        """What takes alike long."""
        return "examination", self.searches

    def guess(self) -> float:
        """Seconds on one core."""
        return 10 + PER_SEARCH * self.searches

    def make(self, _: Path | None) -> dict[str, Any]:
        """Write the raw log, ingest it, and train and measure the model."""
        from clickprism._util.tables import to_plain
        from clickprism.examination.examine import examine
        from clickprism.log.engine import connect
        from clickprism.log.ingest import ingest
        from clickprism.log.sessions import update_sessions
        from clickprism.log.store import LogStore
        from clickprism.simulation.raw_log import write_raw_log
        from clickprism.simulation.raw_settings import RawLogSettings

        start, at_work = time.perf_counter(), time.process_time()
        with tempfile.TemporaryDirectory() as scratch:
            raw = write_raw_log(
                Path(scratch) / "raw", RawLogSettings(searches=self.searches, days=DAYS, seed=self.seed)
            )
            log = Path(scratch) / "log"
            ingest([raw.folder / "events"], log, threads=1)
            store = LogStore.open(log)
            with connect("duckdb", threads=1) as engine:
                update_sessions(store, engine)
                found = to_plain(examine(store, engine, truth=raw.folder / "truth")[1])
        return {
            "run": {"searches": self.searches, "seed": self.seed},
            **{name: found[name] for name in ("by_position", "below_anchor")},
            "held_out": found["quality"],
            "rows": found["counts"],
            "truth": {**found["truth"], **found["truth"].pop("quality")},
            "seconds": time.perf_counter() - start,
            "cpu_seconds": time.process_time() - at_work,
        }
