"""What `make docs` adds to MkDocs: the navigation, pages for files outside docs/, and a check that nothing is fetched.

index.md is the one list of pages: its headings and links, in their order, are the navigation. The API reference is made
from the docstrings. Files of the repository that pages link to, such as SECURITY.md or a source file, get pages below
`files/`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from docs import api

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent
ROOT = DOCS.parent
_CODE_OR_LINK = re.compile(r"```.*?```|`[^`\n]*`|\[([^\]]*)\]\(([^)\s]+)\)", re.DOTALL)
API = DOCS / "reference" / "api.md"  # which is not in the repository
_OUTSIDE = "files/"
_LANGUAGES = {".py": "python", ".toml": "toml", ".sql": "sql", ".md": "markdown"}
_NAMED_BLOCK = re.compile(r"^(\s*```\w+) ([\w./-]+)$", re.MULTILINE)  # as the tutorial names its files
_REPORT = ROOT / "build" / "demo" / "out" / "report.html"
_REPORT_HERE = "<!-- the report of make demo -->"
_REMOTE_STYLE = re.compile(r"""(?:url\(|@import\s*)\s*["']?\s*(?:https?:)?//""")


def on_config(config: MkDocsConfig) -> None:
    config.nav = navigation()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the report of `make demo`, what pages link to outside docs/, and what these link to in turn."""
    from mkdocs.exceptions import PluginError
    from mkdocs.structure.files import File, InclusionLevel

    if not _REPORT.is_file():
        raise PluginError(
            f"There is no {_REPORT.relative_to(ROOT)} to show on the site. Run make docs, which makes it."
        )
    files.append(File.generated(config, "demo-report.html", abs_src_path=str(_REPORT)))
    files.append(File.generated(config, site_uri(API), content=api.page()))

    pages = [DOCS / file.src_uri for file in files.documentation_pages() if DOCS / file.src_uri != API]
    named = {
        uri for section in navigation()[1:] for items in section.values() for item in items for uri in item.values()
    }
    known = set(pages)
    for page in pages:  # which grows
        for target in _targets(page):
            if target in known or target.is_relative_to(DOCS) or not target.is_file():
                continue
            known.add(target)
            uri = site_uri(target)
            content = target.read_bytes() if target.suffix == ".png" else _page(target)
            file = File.generated(config, uri, content=content)
            file.inclusion = InclusionLevel.INCLUDED if uri in named else InclusionLevel.NOT_IN_NAV
            files.append(file)
            if target.suffix == ".md":
                pages.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with links to files outside docs/, or from such a file, led to where the site has them."""
    uri = page.file.src_uri
    source = ROOT / uri.removeprefix(_OUTSIDE) if uri.startswith(_OUTSIDE) else DOCS / uri
    if not source.is_file():
        return markdown  # a page that shows code

    def led(match: re.Match[str]) -> str:
        target = _target(source, match[2]) if match[2] else None
        if target is None or (target.is_relative_to(DOCS) and source.is_relative_to(DOCS)):
            return match[0]
        _, mark, anchor = match[2].partition("#")
        return f"[{match[1]}]({os.path.relpath(site_uri(target), PurePosixPath(uri).parent)}{mark}{anchor})"

    report = "The site has [the report of the demonstration](demo-report.html), from 100,000 made-up persons."
    return _NAMED_BLOCK.sub(r'\1 title="\2"', _CODE_OR_LINK.sub(led, markdown)).replace(_REPORT_HERE, report)


def on_post_build(config: MkDocsConfig) -> None:
    """End the build if a page or style sheet asks for a script, style, font or picture of another site."""
    from mkdocs.exceptions import PluginError

    if found := list(remote_assets(Path(config.site_dir))):
        raise PluginError(f"The site must need no network, but {'; '.join(found[:5])}.")


def navigation() -> list[dict]:
    """The headings of index.md, each with the pages that are linked first below it."""
    seen = {DOCS / "index.md"}
    nav: list[dict] = [{"Home": "index.md"}]
    for section in re.split(r"^## ", (DOCS / "index.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        items: list[dict[str, str]] = []
        for match in _CODE_OR_LINK.finditer(text):
            target = _target(DOCS / "index.md", match[2]) if match[2] else None
            if target is not None and target.suffix == ".md" and "#" not in match[2] and target not in seen:
                seen.add(target)
                items.append({match[1].replace("\n", " "): site_uri(target)})
        nav.append({title: items})
    return nav


def site_uri(path: Path) -> str:
    """Where the site has a file of the repository.

    >>> site_uri(DOCS / "guide" / "tables.md"), site_uri(ROOT / "SECURITY.md"), site_uri(ROOT / "src" / "plan.py")
    ('guide/tables.md', 'files/SECURITY.md', 'files/src/plan.py.md')
    """
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return _OUTSIDE + path.relative_to(ROOT).as_posix() + ("" if path.suffix in (".md", ".png") else ".md")


def remote_assets(site: Path) -> Iterator[str]:
    """What pages and style sheets below a folder would fetch from elsewhere; links that a reader follows are none."""
    for path in sorted(site.rglob("*")):
        if path.suffix == ".html":
            fetched = _Fetched()
            fetched.feed(path.read_text(encoding="utf-8"))
            yield from (f"{path.relative_to(site)} fetches {url}" for url in fetched.urls)
        elif path.suffix == ".css" and _REMOTE_STYLE.search(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(site)} fetches from elsewhere"


class _Fetched(HTMLParser):
    """The addresses outside the site that a browser fetches to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        fetches = [given.get("src"), given.get("srcset"), given.get("poster")]
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            fetches.append(given.get("href"))
        self.urls += [url for url in fetches if url and re.match(r"(?:https?:)?//", url)]
        if _REMOTE_STYLE.search(given.get("style") or ""):
            self.urls.append("a style from elsewhere")


def _targets(page: Path) -> Iterator[Path]:
    for match in _CODE_OR_LINK.finditer(page.read_text(encoding="utf-8")):
        if match[2] and (target := _target(page, match[2])) is not None:
            yield target


def _target(page: Path, link: str) -> Path | None:
    """The file of the repository that a link on a page leads to."""
    file = link.partition("#")[0]
    return None if not file or re.match(r"[a-z]+:", link) else Path(os.path.normpath(page.parent / file))


def _page(path: Path) -> str:
    """A file as a page: itself, or its text as code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {path.relative_to(ROOT).as_posix()}\n\n"
    return f"{head}````{_LANGUAGES.get(path.suffix, 'text')}\n{text}\n````\n"
