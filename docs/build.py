"""Build the site and check every link in it: `python -m docs.build` (`make docs`). It needs no network.

Sphinx fails on a page that is not in the navigation, on a link to a missing page or heading, and on a docstring that it
cannot parse. The HTML is then checked as a browser reads it: every link leads to a file of the site, every anchor
exists on its page, and no page loads anything from another host.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.cmd.build import build_main

HERE = Path(__file__).parent
ELSEWHERE = re.compile(r"(?:url\(|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)")  # in a style sheet
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href"), ("object", "data")}


@dataclass
class Page(HTMLParser):
    """The links of a page, and the anchors in it."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the anchors and links of a tag."""
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.ids.add(value)
            elif (tag, name) in LOADED:
                self.loads.append(value)
            elif tag == "a" and name == "href":
                self.links.append(value)


def problems(site: Path) -> Iterator[str]:
    """Yield what is wrong with the links of a folder of HTML, such as `a.html: no #y in b.html`."""
    pages = {path.resolve(): read(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        for link in [*page.links, *page.loads]:
            to = urlsplit(link)
            if to.scheme or to.netloc:
                if link in page.loads and to.scheme != "data":
                    yield f"{name}: loads {link} from another host"
                continue
            target = (path.parent / unquote(to.path)).resolve() if to.path else path
            anchor = unquote(to.fragment)
            if not target.is_file():
                yield f"{name}: no file {to.path}"
            elif anchor and target in pages and anchor not in pages[target].ids:
                yield f"{name}: no #{anchor} in {target.relative_to(site.resolve())}"
    for style in sorted(site.rglob("*.css")):
        for link in ELSEWHERE.findall(style.read_text(encoding="utf-8")):
            yield f"{style.relative_to(site)}: loads {link} from another host"


def read(path: Path) -> Page:
    """Read the links and anchors of a page."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def build(out: Path) -> bool:
    """Build the site with Sphinx, and return whether there was no warning."""
    with tempfile.TemporaryDirectory() as scratch:
        return build_main(["-b", "html", "-q", "-W", "--keep-going", "-E", "-d", scratch, str(HERE), str(out)]) == 0


def main() -> int:
    """Build the site, check it, and return the exit code."""
    parser = argparse.ArgumentParser(description="Build the site and check every link in it.")
    parser.add_argument("--out", type=Path, default=Path("site"), help="folder of the site")
    out = parser.parse_args().out
    built = build(out)
    found = list(problems(out))
    account = f"{len(list(out.rglob('*.html')))} pages in {out}, every link works"
    print("\n".join(found) or account, file=sys.stderr)
    return 0 if built and not found else 1


if __name__ == "__main__":
    sys.exit(main())
