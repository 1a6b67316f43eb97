"""Compare the verdicts of a diagnosis with what is true in simulated worlds."""

from __future__ import annotations

import csv
import io
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from clickprism._util.processes import side_by_side
from clickprism.diagnosis.diagnose import diagnose
from reproduce.common.worlds import WorldSettings, draw_settings, make_world

BIASES: Final = ("position", "trust", "coupling", "interaction", "popularity", "feedback", "identifiability")
RIGHT_BAR, ALARM_BAR = 0.9, 0.1
COLUMNS: Final = (
    "finding",
    "worlds",
    "present",
    "right",
    "false alarms",
    "missed",
    "inconclusive",
    "right share",
    "false alarm share",
)


@final
@dataclass(frozen=True)
class Tried:
    """The diagnosis of one world.

    Attributes:
        seed: Seed of the world.
        expected: The right verdict, by finding.
        said: The verdict of the diagnosis.
        behind: Its estimate and p value, as text.
        seconds: CPU time of the diagnosis.
    """

    seed: int
    expected: Mapping[str, str]
    said: Mapping[str, str]
    behind: Mapping[str, str]
    seconds: float

    @property
    def settings(self) -> WorldSettings:
        """Return what is true in the world."""
        return draw_settings(self.seed)

    @property
    def wrong(self) -> list[str]:
        """Return the findings whose verdict is wrong, as text."""
        return [
            f"{name}: {said} for {self.expected[name]}, {self.behind[name]}".rstrip(", ")
            for name, said in self.said.items()
            if said != self.expected[name]
        ]


@final
@dataclass(frozen=True)
class Confusion:
    """The verdicts on one finding over all worlds.

    Attributes:
        name: Name of the finding.
        worlds: Number of worlds.
        present: Number of worlds in which it is present.
        right: Number of right verdicts; "inconclusive" is right if only an experiment could decide.
        alarms: Seeds of worlds where "present" is wrong.
        missed: Seeds of worlds where "absent" is wrong.
        inconclusive: Seeds of worlds where "inconclusive" is wrong.
    """

    name: str
    worlds: int
    present: int
    right: int
    alarms: tuple[int, ...]
    missed: tuple[int, ...]
    inconclusive: tuple[int, ...]

    @property
    def right_share(self) -> float:
        """Return the share of worlds with the right verdict."""
        return self.right / max(self.worlds, 1)

    @property
    def alarm_share(self) -> float:
        """Return the share of false alarms among the worlds where it is not present."""
        return len(self.alarms) / max(self.worlds - self.present, 1)

    @property
    def met(self) -> bool:
        """Return whether both bars are met."""
        return self.right_share >= RIGHT_BAR and self.alarm_share <= ALARM_BAR

    def row(self) -> list[str]:
        """Return a row of the table with the columns `COLUMNS`."""
        counts = [self.worlds, self.present, self.right, len(self.alarms), len(self.missed), len(self.inconclusive)]
        return [self.name, *map(str, counts), f"{self.right_share:.3f}", f"{self.alarm_share:.3f}"]


def try_world(seed: int, names: Sequence[str]) -> Tried:
    """Simulate a world and diagnose its log."""
    world = make_world(draw_settings(seed))
    start = time.process_time()
    findings = diagnose(world.logged, only=names).findings
    seconds = round(time.process_time() - start, 2)
    behind = {}
    for name, finding in findings.items():
        p_value = "" if finding.p_value is None else f"(p {finding.p_value:.2g})"
        behind[name] = f"{finding.number} {p_value}".strip()
    said = {name: finding.verdict for name, finding in findings.items()}
    return Tried(seed, dict(world.settings.verdicts), said, behind, seconds)


def try_all(
    seeds: Sequence[int], *, names: Sequence[str] = BIASES, processes: int = 1, tell: Callable[[Tried], None]
) -> list[Tried]:
    """Diagnose the worlds of these seeds, several at a time."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    tried: list[Tried] = []
    tasks = [(try_world, (seed, tuple(names))) for seed in seeds]
    for one in side_by_side(tasks, processes):
        tell(one)
        tried.append(one)
    return sorted(tried, key=lambda one: one.seed)


def confusions(tried: Sequence[Tried]) -> list[Confusion]:
    """Return how often each finding was right."""
    found = []
    for name in BIASES:
        known = [one for one in tried if name in one.said]
        if not known:
            continue

        def seeds(said: str, *, name: str = name, known: list[Tried] = known) -> tuple[int, ...]:
            return tuple(one.seed for one in known if one.said[name] == said != one.expected[name])

        found.append(
            Confusion(
                name,
                len(known),
                sum(one.expected[name] == "present" for one in known),
                sum(one.said[name] == one.expected[name] for one in known),
                seeds("present"),
                seeds("absent"),
                seeds("inconclusive"),
            )
        )
    return found


def brief(settings: WorldSettings) -> str:
    """Return what is true in a world, in one line."""
    parts = [settings.browsing, settings.policy, f"severity {settings.severity:.2f}"]
    parts += [
        f"{name} {getattr(settings, name):.2f}"
        for name in ("trust", "coupling", "attention")
        if getattr(settings, name) > 0
    ]
    return ", ".join([*parts, f"{settings.queries} queries, {settings.sessions:,} searches"])


def as_csv(tried: Sequence[Tried]) -> str:
    """Return one row for each world and finding, as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["seed", "world", "finding", "expected", "said", "behind", "right"])
    for one in tried:
        for name, said in one.said.items():
            right = "yes" if said == one.expected[name] else "no"
            writer.writerow([one.seed, brief(one.settings), name, one.expected[name], said, one.behind[name], right])
    return text.getvalue()


def as_markdown(tried: Sequence[Tried]) -> str:
    """Return the table over findings, and the worlds with wrong verdicts."""
    lines = ["| " + " | ".join([*COLUMNS, "bars met"]) + " |", "|" + "---|" * (len(COLUMNS) + 1)]
    lines += ["| " + " | ".join([*each.row(), "yes" if each.met else "no"]) + " |" for each in confusions(tried)]
    lines += ["", "| world | wrong verdicts |", "|---|---|"]
    lines += [f"| {one.seed}: {brief(one.settings)} | {'; '.join(one.wrong)} |" for one in tried if one.wrong]
    return "\n".join(lines) + "\n"
