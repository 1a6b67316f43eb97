"""Settings of Sphinx: the pages are Markdown, and the reference of the Python API is generated from the code."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import clickprism
from clickprism.click_models import CLICK_MODELS, USERS
from clickprism.debias import METHODS
from clickprism.rankers import RANKERS

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "clickprism"
html_title = "clickprism"
version = release = clickprism.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["*.py"]

myst_heading_anchors = 4  # the anchors of GitHub, and every link to one is checked
highlight_language = "none"  # a block says what it is, or is plain text
default_role = "code"  # docstrings have `names` in single backticks
smartquotes = False  # --option stays as it is typed

autodoc_member_order = "bysource"
autodoc_type_aliases = {name: name for name in ("Bool", "Float32", "Float64", "Int32", "Int64", "Text")}
napoleon_attr_annotations = False
toc_object_entries = False  # the navigation has pages and headings, not attributes

html_theme = "furo"
html_copy_source = False
html_use_index = False
html_domain_indices = False
html_show_copyright = False
html_show_sphinx = False

SECTIONS = {  # title of the section of each package of the public API, in the order of the page
    "types": "Data types",
    "data": "Reading data",
    "log": "Reading data",
    "click_models": "Click models",
    "simulation": "Simulation",
    "log_model": "The model of a log",
    "diagnosis": "Diagnosis",
    "auto": "From a log to a ranker",
    "debias": "Methods",
    "rankers": "Rankers",
    "training": "Training",
    "model": "Training",
    "evaluation": "Measures and tests",
    "experiments": "Experiments",
    "errors": "Errors",
}
REGISTRIES = {"method": METHODS, "ranker": RANKERS, "user": USERS, "click model": CLICK_MODELS}


def reference() -> Iterator[str]:
    """Yield the reference: every public name by topic, then everything that settings choose by a short name."""
    sections: dict[str, list[str]] = {title: [] for title in SECTIONS.values()}
    for name in clickprism.__all__:
        package = getattr(clickprism, name).__module__.split(".")[1]
        sections.setdefault(SECTIONS.get(package, "Others"), []).append(name)
    for title, names in sections.items():
        if names:
            yield f"## {title}\n"
        for name in sorted(names, key=str.lower):
            yield f"### `{name}`\n"
            yield documented(f"clickprism.{name}", is_class=name[0].isupper())
    for kind, registry in REGISTRIES.items():
        yield f"## Every {kind}, by name\n"
        for name, place in registry.items():
            yield f"### `{name}` ({kind})\n"
            yield documented(place.replace(":", "."), is_class=True)


def documented(name: str, *, is_class: bool) -> str:
    """Return the directive by which autodoc documents one name."""
    directive = f".. autoclass:: {name}\n   :members:\n" if is_class else f".. autofunction:: {name}\n"
    return f"```{{eval-rst}}\n{directive}```\n"


def fill(_: Sphinx, docname: str, source: list[str]) -> None:
    """Append the reference to the page `reference/api`."""
    if docname == "reference/api":
        source[0] += "\n" + "\n".join(reference())


def equations(_app: Sphinx, _what: str, _name: str, _value: object, _options: object, lines: list[str]) -> None:
    """Show a paragraph of a docstring that contains an equation and ends without a full stop as it is typed."""
    paragraphs = "\n".join(lines).split("\n\n")
    for number, text in enumerate(paragraphs):
        if number and " = " in text and not text.endswith(".") and not re.match(r"\s|>>>|- |\w+:\n", text):
            paragraphs[number] = "::\n\n" + textwrap.indent(text, "    ")
    lines[:] = "\n\n".join(paragraphs).split("\n")


def signature(
    _app: Sphinx, _what: str, _name: str, _value: object, _options: object, given: str | None, gives: str | None
) -> tuple[str | None, str | None]:
    """Show an alias in a union by its name."""
    plain = re.compile(r"TypeAliasForwardRef\('(\w+)'\)")
    parts = [text and plain.sub(r"\1", text) for text in (given, gives)]
    return parts[0], parts[1]


def setup(app: Sphinx) -> None:
    """Connect the functions above; Sphinx calls this before it reads a page."""
    app.connect("source-read", fill)
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-process-docstring", equations, priority=400)  # before napoleon, at 500
