"""What MkDocs calls while it builds the site (https://www.mkdocs.org/user-guide/configuration/#hooks).

Rule of this module: it passes on. What becomes a page is in ``pages``, ``reference``, ``results`` and ``plots``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from docs.site import check, pages, plots, reference, results

_SNAPSHOT = pages.ROOT / "tests" / "packaging" / "public_names.txt"
_RESULTS = pages.ROOT / "bench" / "results"
_OVERVIEW = f"bench/results/{results.OVERVIEW}"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the navigation that of the index of the documentation."""
    with _refusing():
        modules = reference.public_names(_SNAPSHOT)
        references = [reference.INDEX, *({name: f"{reference.FOLDER}/{name}.md"} for name in modules)]
        runs = [{path.stem: pages.page_path(_path(path))} for path in sorted(_RESULTS.glob("*.json"))]
        figures = [pages.FIGURES, {"All runs": [_OVERVIEW, *runs]}]
        config.nav = [*pages.navigation(), {"Reference": references}, {"Figures": figures}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository, the reference and the results."""
    in_navigation = set(_leaves(config.nav))
    runs = sorted(_RESULTS.glob("*.json"))
    with _refusing():
        written = {path: _page_of(path) for path in pages.reachable()}
        drawn = {path: name for path in runs if (name := plots.plots_name(path)) is not None}
        written |= {_path(path): results.run_page(path, drawn.get(path)) for path in runs}
        whole = {_path(path.with_name(name)): plots.plots_page(path) for path, name in drawn.items()}
        written |= {_OVERVIEW: results.overview_page(runs)} | reference.pages(reference.public_names(_SNAPSHOT))
    for path, text in written.items():
        place = pages.page_path(path)
        if text is None:
            files.append(File(place, str(pages.ROOT), config.site_dir, config.use_directory_urls))
        else:
            files.append(File.generated(config, place, content=text))
        if place not in in_navigation:
            files.src_uris[place].inclusion = InclusionLevel.NOT_IN_NAV
    for place, text in whole.items():
        files.append(File.generated(config, place, content=text))
    for run in runs:
        files.append(File(_path(run), str(pages.ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files lead to the pages that show them."""
    return markdown if page.file.generated_by else pages.with_page_links(page.file.src_uri, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that loads from elsewhere or has a link to nowhere."""
    found = check.problems(Path(config.site_dir))
    if found:
        raise PluginError("\n".join([f"the site has {len(found)} problems:", *found]))


@contextmanager
def _refusing() -> Iterator[None]:
    """Report what is wrong with the sources as an error of the build, without a traceback."""
    try:
        yield
    except (FileNotFoundError, ValueError) as error:
        raise PluginError(str(error)) from error


def _page_of(path: str) -> str | None:
    """The Markdown of a page that is made, nothing if it is a file itself."""
    if path.endswith((".md", *pages.IMAGES)):
        return None
    return pages.folder_page(path) if (pages.ROOT / path).is_dir() else pages.text_page(path)


def _path(path: Path) -> str:
    return path.relative_to(pages.ROOT).as_posix()


def _leaves(entry: object) -> list[str]:
    """The paths that a navigation names."""
    if isinstance(entry, dict):
        return [path for part in entry.values() for path in _leaves(part)]
    if isinstance(entry, list):
        return [path for part in entry for path in _leaves(part)]
    return [str(entry)]
