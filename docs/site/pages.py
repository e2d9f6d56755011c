"""What mkdocs puts on the site: the pages of the repository under their own paths, so that links between them hold.

mkdocs reads one folder, and README, docs/ and benchmarks/results/ link each other. So the site has all pages that
README and docs/ reach by links, and the pictures on these pages. The theme loads one script from a network; the site
has a copy of this script.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(#[^)\s]*)?\)")
ON_THE_SITE = {".md", ".png"}
FETCHED = re.compile(
    r'<(script|img|iframe)[^>]* src="(https?:)?//[^>]*>|<link[^>]* rel="(stylesheet|icon)"[^>]* href="https?:[^>]*>'
)
OWN = ("site.css", "site.js", "iframe-worker.js")
"""Our files beside this one that every page loads."""
LOADED = "https://unpkg.com/iframe-worker/shim"
"""The script that the theme's plugin `offline` loads from a network."""
UNNAMED, NAMED = (
    'data-md-component="search" role="dialog"',
    'data-md-component="search" role="dialog" aria-label="Search"',
)
"""The theme's search, without and with a name for screen readers."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of `docs_dir` by the pages of the repository and the pictures on them."""
    found: set[Path] = set()
    roots = (ROOT / page for page in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))
    todo = [*roots, *sorted((ROOT / "docs").glob("*.md"))]
    while todo:
        path = todo.pop()
        if path not in found and path.suffix in ON_THE_SITE:
            found.add(path)
            todo += linked(path) if path.suffix == ".md" else []
    theirs = [file for file in files if not (file.abs_src_path or "").startswith(config.docs_dir)]
    ours = [File.generated(config, name(path), abs_src_path=str(path)) for path in sorted(found)]
    assets = [
        File.generated(config, f"assets/{file}", abs_src_path=str(Path(__file__).with_name(file))) for file in OWN
    ]
    return Files([*theirs, *ours, *assets])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leave out the links to code and folders, which the site does not have."""
    here = ROOT / page.file.src_uri
    return re.sub(r"\[([^\]]*)\]\((?!https?://)([^)#\s]+)\)", lambda found: _on_site(found, here), markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Load our copy of the theme's script, and name the search."""
    return _mended(output, get_relative_url("assets/iframe-worker.js", page.url))


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """Do the same on the page that says that a page does not exist."""
    return _mended(output_content, "/assets/iframe-worker.js")


def linked(path: Path) -> Iterator[Path]:
    """Yield the files that a page links."""
    for found in LINK.finditer(path.read_text(encoding="utf-8")):
        if found[1] and (target := (path.parent / found[1]).resolve()).is_file():
            yield target


def name(path: Path) -> str:
    """Return the path of a file from the root of the repository, which is also its place on the site."""
    return path.relative_to(ROOT).as_posix()


def _on_site(found: re.Match[str], here: Path) -> str:
    """Return a link to a page or a picture as it is, and only the text of any other link."""
    target = (here.parent / found[2]).resolve()
    return found[0] if target.suffix in ON_THE_SITE else found[1]


def _mended(html: str, script: str) -> str:
    """Raise PluginError if the page would still load something from a network."""
    html = html.replace(LOADED, script).replace(UNNAMED, NAMED)
    if fetched := FETCHED.search(html):
        raise PluginError(f"a page of the site loads from a network: {fetched[0]}")
    return html
