"""Reports: one HTML file with tables, figures, settings, versions, and what to try next."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import metadata, resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from clickprism._util.files import write_file
from clickprism._util.tables import Table, code_html
from clickprism.errors import DataError
from clickprism.evaluation.compare import Comparison, as_html

Part: TypeAlias = "Table | Said | Beside | str | Mapping[str, str]"


class Said(NamedTuple):
    """A verdict with its sentence, the numbers behind it, and what to do."""

    tone: Literal["good", "bad", "inconclusive"]  # how the verdict is drawn
    word: str  # the verdict
    sentence: str  # what it says
    facts: str = ""  # the numbers behind it
    advice: str = ""  # what to do

    def html(self) -> str:
        """Return it as HTML, with everything escaped; `commands` in backticks become code."""
        sign = f'<span class="sign {self.tone}">{escape(self.word)}</span>'
        said = f'<p class="said">{sign}{code_html(self.sentence)}</p>'
        facts = f'\n<p class="quiet">{escape(self.facts)}</p>' if self.facts else ""
        return said + facts + (f'\n<p class="advice">{code_html(self.advice)}</p>' if self.advice else "")


class Beside(NamedTuple):
    """A figure and a table, side by side where there is room; a long table is folded."""

    figure: str  # an SVG element from `plots.svg`, or empty
    table: Table  # what it draws

    def html(self) -> str:
        """Return it as HTML; the text of the table is escaped."""
        figure = f"<figure>\n{self.figure}</figure>\n" if self.figure else ""
        table, rows = self.table.html(), len(self.table.rows)
        if rows > FOLDED:
            table = f"<details><summary>The numbers, {rows} rows</summary>\n{table}\n</details>"
        return f'<div class="beside">\n{figure}<div class="scroll">{table}</div>\n</div>'


FOLDED = 12  # maximum rows of a table that is shown below its figure without folding
PACKAGES = ("clickprism", "numpy", "scipy", "scikit-learn", "numba", "torch", "lightgbm", "matplotlib")


def write_report(
    path: Path,
    *,
    title: str,
    summary: str,
    comparison: Comparison | Sequence[Table],
    figures: Mapping[str, str],
    settings: Mapping[str, Any],
    more: Mapping[str, Sequence[Part]] = MappingProxyType({}),
    notes: Sequence[str] = (),
    next_commands: Sequence[str] = (),
    folded: Mapping[str, Sequence[Part]] = MappingProxyType({}),
) -> Path:
    """Write a self-contained HTML file for light and dark, large and small screens, and return its path.

    The same input gives the same bytes. The file is written completely or not at all.

    Args:
        path: File to write; its folder is created.
        title: Title of the page.
        summary: What was done and what came out, in paragraphs separated by empty lines.
        comparison: The numbers, or any tables; empty for no such section.
        figures: SVG elements from `plots.svg`, by caption.
        settings: Everything needed to run it again; may be nested.
        more: Further tables, paragraphs and figures (by caption), by heading.
        notes: What else the reader should know.
        next_commands: Commands to try next.
        folded: Sections like those of `more` that come last and are closed until the reader opens them.
    """
    from jinja2 import Environment, StrictUndefined

    parts = [part for several in (*more.values(), *folded.values()) for part in several]
    for drawn in (figures, *(part for part in parts if isinstance(part, Mapping))):
        for caption, figure in drawn.items():
            if not figure.startswith("<svg"):
                problem = f"the figure {caption!r} is not an SVG element"
                raise DataError(problem, remedy="Make it with clickprism's plots.svg")
    if isinstance(comparison, Comparison):
        tables = as_html(comparison)
    else:
        tables = "\n".join(table.html() for table in comparison)
    source = resources.files("clickprism.evaluation").joinpath("templates/report.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(source).render(
        title=title,
        summary=[paragraph for paragraph in summary.split("\n\n") if paragraph.strip()],
        tables=tables,
        figures=figures,
        settings=list(flat(settings)),
        more={heading: "\n".join(map(_html, several)) for heading, several in more.items()},
        folded={heading: "\n".join(map(_html, several)) for heading, several in folded.items()},
        notes=notes,
        next_commands=next_commands,
        versions=versions(),
    )
    write_file(path, page)
    return path


def _html(part: Part) -> str:
    if isinstance(part, Mapping):
        said = {caption: f"<figcaption>{escape(caption)}</figcaption>\n" if caption else "" for caption in part}
        captions = (f"{said[caption]}{figure}" for caption, figure in part.items())
        return '<div class="figures">\n' + "".join(f"<figure>\n{each}</figure>\n" for each in captions) + "</div>"
    return f'<p class="quiet">{escape(part)}</p>' if isinstance(part, str) else part.html()


def flat(settings: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Return nested settings as dotted names and plain values.

    >>> list(flat({"fit": {"epochs": 3, "layers": [64, 32]}, "seed": None}))
    [('fit.epochs', '3'), ('fit.layers', '64, 32'), ('seed', 'none')]
    """
    for name, value in settings.items():
        full = f"{path}.{name}" if path else str(name)
        if isinstance(value, Mapping):
            yield from flat(value, full)
        elif isinstance(value, list | tuple):
            yield full, ", ".join(map(str, value))
        else:
            yield full, "none" if value is None else str(value)


def versions() -> str:
    """Return the versions of Python and of the packages, in one line."""
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join([*found, f"Python {platform.python_version()}", f"{platform.system()} {platform.machine()}"])
