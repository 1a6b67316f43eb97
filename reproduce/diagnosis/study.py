"""What a diagnosis says of worlds, against what is true of them."""

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
from clickprism.simulation.worlds import WorldSettings, draw_settings, make_world

BIASES: Final = ("position", "trust", "coupling", "interaction", "popularity", "identifiability")
RIGHT_BAR, ALARM_BAR = 0.9, 0.1
COLUMNS: Final = (
    "bias",
    "worlds",
    "present",
    "right",
    "false alarm",
    "missed",
    "unknown",
    "right share",
    "alarm share",
)


@final
@dataclass(frozen=True)
class Tried:
    """One world.

    Attributes:
        seed: of the world.
        expected: the verdict that would be right, by bias.
        said: the verdict that was given.
        behind: the number and the p value behind it, in words.
        seconds: of one core, for each finding.
    """

    seed: int
    expected: Mapping[str, str]
    said: Mapping[str, str]
    behind: dict[str, str]
    seconds: dict[str, float]

    @property
    def settings(self) -> WorldSettings:
        """What is true of it."""
        return draw_settings(self.seed)


@final
@dataclass(frozen=True)
class Confusion:
    """How a bias was judged over worlds.

    Attributes:
        bias: its name.
        worlds: how many.
        present: where it is there.
        right: where the right verdict was given, "unknown" where only an experiment could tell.
        alarms: seeds where it was said to be there and is not, or cannot be told.
        missed: seeds where it was said not to be there and is, or cannot be told.
        unknown: seeds where it could have been told and was not.
    """

    bias: str
    worlds: int
    present: int
    right: int
    alarms: tuple[int, ...]
    missed: tuple[int, ...]
    unknown: tuple[int, ...]

    @property
    def right_share(self) -> float:
        """Of all worlds."""
        return self.right / max(self.worlds, 1)

    @property
    def alarm_share(self) -> float:
        """Of the worlds without the bias."""
        return len(self.alarms) / max(self.worlds - self.present, 1)

    @property
    def met(self) -> bool:
        """Whether both bars are met."""
        return self.right_share >= RIGHT_BAR and self.alarm_share <= ALARM_BAR

    def row(self) -> list[str]:
        """A row of the table, as `COLUMNS` names it."""
        counts = [self.worlds, self.present, self.right, len(self.alarms), len(self.missed), len(self.unknown)]
        return [self.bias, *map(str, counts), f"{self.right_share:.3f}", f"{self.alarm_share:.3f}"]


def try_world(seed: int, names: Sequence[str]) -> Tried:
    """Make a world, and ask what its log tells."""
    world = make_world(draw_settings(seed))
    said, behind, seconds = {}, {}, {}
    for name in names:
        start = time.process_time()
        found = diagnose(world.logged, only=[name]).findings
        seconds[name] = round(time.process_time() - start, 2)
        if name in found:
            said[name] = found[name].verdict
            number, p = found[name].number, found[name].p_value
            behind[name] = " ".join(
                ([] if number is None else [f"{number:.3g}"]) + ([] if p is None else [f"(p {p:.2g})"])
            )
    return Tried(seed, dict(world.settings.verdicts), said, behind, seconds)


def try_all(
    seeds: Sequence[int], *, names: Sequence[str] = BIASES, processes: int = 1, tell: Callable[[Tried], None]
) -> list[Tried]:
    """Try these worlds, several at a time."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    tried: list[Tried] = []
    tasks = [(try_world, (seed, tuple(names))) for seed in seeds]
    for one in side_by_side(tasks, processes):
        tell(one)
        tried.append(one)
    return sorted(tried, key=lambda one: one.seed)


def confusions(tried: Sequence[Tried]) -> list[Confusion]:
    """How each bias was judged."""
    found = []
    for bias in BIASES:
        known = [one for one in tried if bias in one.said]
        if not known:
            continue

        def seeds(said: str, *expected: str, bias: str = bias, known: list[Tried] = known) -> tuple[int, ...]:
            return tuple(one.seed for one in known if one.said[bias] == said and one.expected[bias] in expected)

        found.append(
            Confusion(
                bias,
                len(known),
                sum(one.expected[bias] == "present" for one in known),
                sum(one.said[bias] == one.expected[bias] for one in known),
                seeds("present", "absent", "unknown"),
                seeds("absent", "present", "unknown"),
                seeds("unknown", "present", "absent"),
            )
        )
    return found


def brief(settings: WorldSettings) -> str:
    """What is true of a world, in a line."""
    parts = [settings.browsing, settings.policy, f"severity {settings.severity:.2f}"]
    parts += [
        f"{name} {getattr(settings, name):.2f}"
        for name in ("trust", "coupling", "attention")
        if getattr(settings, name) > 0
    ]
    return ", ".join([*parts, f"{settings.queries} queries, {settings.sessions:,} searches"])


def as_csv(tried: Sequence[Tried]) -> str:
    """One row a world and bias."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["seed", "world", "bias", "expected", "said", "behind", "right"])
    for one in tried:
        for bias, said in one.said.items():
            if bias in one.expected:
                right = "yes" if said == one.expected[bias] else "no"
                row = [one.seed, brief(one.settings), bias, one.expected[bias], said, one.behind[bias], right]
                writer.writerow(row)
    return text.getvalue()


def as_markdown(tried: Sequence[Tried]) -> str:
    """The table over biases, and the worlds that were judged wrongly."""
    lines = ["| " + " | ".join([*COLUMNS, "bars met"]) + " |", "|" + "---|" * (len(COLUMNS) + 1)]
    lines += ["| " + " | ".join([*each.row(), "yes" if each.met else "no"]) + " |" for each in confusions(tried)]
    apart = [one for one in tried if one.expected["identifiability"] == "absent" and "identifiability" in one.said]
    found = sum(one.said["identifiability"] == "absent" for one in apart)
    lines += ["", f"Positions that nothing links: found in {found} of {len(apart)} worlds that have them.", ""]
    lines += ["| world | judged wrongly |", "|---|---|"]
    for one in tried:
        wrong = [
            f"{bias}: {said} for {one.expected[bias]}, {one.behind[bias]}".rstrip(", ")
            for bias, said in one.said.items()
            if bias in one.expected and said != one.expected[bias]
        ]
        if wrong:
            lines.append(f"| {one.seed}: {brief(one.settings)} | {'; '.join(wrong)} |")
    return "\n".join(lines) + "\n"
