"""The settings of a log, kept in its `log.toml`, and of the engine that runs queries over it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from clickprism._util.files import write_file
from clickprism.errors import SettingError
from clickprism.settings import build, plain, read_toml, resolve, suggest, to_toml

if TYPE_CHECKING:
    from clickprism.log.readers import SourceSettings
    from clickprism.log.robots import RobotSettings
    from clickprism.log.sessions import SessionSettings
    from clickprism.log.windows import WindowSettings

T = TypeVar("T")
PARTS: Final = {
    "source": "clickprism.log.readers:SourceSettings",
    "robots": "clickprism.log.robots:RobotSettings",
    "sessions": "clickprism.log.sessions:SessionSettings",
    "windows": "clickprism.log.windows:WindowSettings",
    "examination": "clickprism.observation.examination:ExaminationSettings",
}
SPARK: Final = re.compile(r"local(\[(\*|[1-9]\d*)\])?|spark://\S+")
MEMORY: Final = re.compile(r"[1-9]\d*(MB|GB)")


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """What runs the queries over a log.

    Attributes:
        engine: Engine that runs the queries: duckdb, local[*] (Spark on this machine) or spark://host:port.
        memory: Maximum memory of the engine, such as 500MB or 2GB.
    """

    engine: str = "duckdb"
    memory: str = "2GB"

    def __post_init__(self) -> None:
        if self.engine != "duckdb" and not SPARK.fullmatch(self.engine):
            raise SettingError("engine", self.engine, "be duckdb, local[*], local[N] or spark://host:port")
        if not MEMORY.fullmatch(self.memory):
            raise SettingError("memory", self.memory, "be such as 500MB or 2GB")


@dataclass(frozen=True)
class LogSettings:
    """What `log.toml` says: plain values by part; each part becomes an object of its class when it is asked for.

    >>> LogSettings({"robot": {}})
    Traceback (most recent call last):
    clickprism.errors.SettingError: log.toml robot must be a known part (did you mean 'robots'?), got {}
    """

    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.values.items():
            if name not in PARTS:
                raise SettingError(f"log.toml {name}", value, f"be a known part ({suggest(name, PARTS)})")

    def part(self, name: str) -> Any:
        """The settings object of a part; what is not said has its default."""
        return build(resolve(PARTS, name, path="log.toml"), self.values.get(name, {}), path=name)

    def beneath(self, name: str, given: T) -> T:
        """Return the settings of a part with every field of `given` that is not at its default.

        >>> from clickprism.log.windows import WindowSettings
        >>> LogSettings({"windows": {"k": 3}}).beneath("windows", WindowSettings()).k
        3
        """
        usual = type(given)()
        changed = {
            each.name: getattr(given, each.name)
            for each in fields(given)  # type: ignore[arg-type]
            if getattr(given, each.name) != getattr(usual, each.name)
        }
        merged: T = replace(self.part(name), **changed)
        return merged

    def with_part(self, name: str, settings: Any) -> LogSettings:
        """The same with another settings object for one part."""
        return replace(self, values={**self.values, name: plain(settings)})

    @property
    def source(self) -> SourceSettings:
        """How input files are read."""
        made: SourceSettings = self.part("source")
        return made

    @property
    def robots(self) -> RobotSettings:
        """Which rows the robot rules leave out."""
        made: RobotSettings = self.part("robots")
        return made

    @property
    def sessions(self) -> SessionSettings:
        """How events become lists with clicks."""
        made: SessionSettings = self.part("sessions")
        return made

    @property
    def windows(self) -> WindowSettings:
        """How lists become click features."""
        made: WindowSettings = self.part("windows")
        return made


def read_log_settings(path: Path) -> LogSettings:
    """The settings in a `log.toml`; the defaults if there is none."""
    return LogSettings(read_toml(path)) if path.exists() else LogSettings()


def write_log_settings(settings: LogSettings, path: Path) -> None:
    """Write a `log.toml`, whole or not at all."""
    write_file(path, to_toml(settings.values))
