"""Makes the site: ``python -m docs.site.build``, or with ``serve``, shows it while pages are written.

Rule of this module: it passes on. What becomes a page is in ``pages``, ``reference``, ``results`` and ``plots``, and
what the generator is to do with them in ``site.yml``. The generator, Zensical, has no hooks: it gets all pages as files
in ``build/pages``, and a configuration beside them.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from docs.site import check, pages, plots, reference, results
from millpond.bench.history import History, read_history

BUILD = pages.ROOT / "build"
PAGES = BUILD / "pages"
SITE = BUILD / "site"
CONFIGURATION = BUILD / "site.yml"
CACHE = BUILD / ".cache"
"""The generator's, by the text of pages; a page of the reference has the same when a docstring changes."""

_HERE = Path(__file__).parent
_SNAPSHOT = pages.ROOT / "tests" / "packaging" / "public_names.txt"
_RESULTS = pages.ROOT / "bench" / "results"
_OVERVIEW = f"bench/results/{results.OVERVIEW}"
_MOVED = f"bench/results/{plots.MOVED}"


def main(arguments: list[str]) -> int:
    """Make the site, or serve it if that is asked for; the exit code."""
    try:
        write_pages(PAGES)
        CONFIGURATION.write_text(configuration())
    except (FileNotFoundError, ValueError) as error:
        return _refused(str(error))
    shutil.rmtree(CACHE, ignore_errors=True)
    command = arguments or ["build", "--strict"]
    done = subprocess.run([sys.executable, "-m", "zensical", *command, "-f", str(CONFIGURATION)], check=False)
    if done.returncode or command[0] != "build":
        return done.returncode
    found = check.problems(SITE)
    return _refused("\n".join([f"the site has {len(found)} problems:", *found])) if found else 0


def write_pages(place: Path) -> None:
    """Write what the generator reads: pages, images, and the files that pages show.

    Raises:
        FileNotFoundError: a page links to what is not there.
        ValueError: a file is no file of figures, or a public name has no module.
    """
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(_HERE / "files", place)
    for path, content in _contents().items():
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, target)
        else:
            target.write_text(content)


def configuration() -> str:
    """Return the generator's, with the navigation, which is that of the index of the documentation."""
    modules = reference.public_names(_SNAPSHOT)
    references = [reference.INDEX, *({name: f"{reference.FOLDER}/{name}.md"} for name in modules)]
    runs = [{path.stem: pages.page_path(_path(path))} for path in _runs()]
    figures = [pages.FIGURES, _MOVED, {"All runs": [_OVERVIEW, *runs]}]
    navigation: list[dict[str, Any]] = [*pages.navigation(), {"Reference": references}, {"Figures": figures}]
    text = (_HERE / "site.yml").read_text().replace("$ROOT", str(pages.ROOT))
    return f"{text}\nnav: {json.dumps(navigation)}\n"


def _contents() -> dict[str, str | Path]:
    """Return the text of each page that is made, and the path of each file that is taken as it is, by where it goes."""
    found: dict[str, str | Path] = {pages.page_path(path): _content_of(path) for path in pages.reachable()}
    for path in _runs():
        name = plots.plots_name(path)
        found[_path(path)] = path
        found[pages.page_path(_path(path))] = results.run_page(path, name)
        if name is not None:
            found[_path(path.with_name(name))] = plots.plots_page(path)
    found[_OVERVIEW] = results.overview_page(_runs())
    histories = _histories()
    found[_MOVED] = plots.moved_page(histories)
    found[f"bench/results/{plots.MOVED_PLOTS}"] = plots.moved_plots(histories)
    return found | reference.pages(reference.public_names(_SNAPSHOT))


def _content_of(path: str) -> str | Path:
    """Return the page of a file or folder of the repository, with links that lead to pages."""
    place = pages.ROOT / path
    if path.endswith(pages.IMAGES):
        return place
    if path.endswith(".md"):
        return pages.with_page_links(path, place.read_text())
    return pages.folder_page(path) if place.is_dir() else pages.text_page(path)


def _runs() -> list[Path]:
    return sorted(_RESULTS.glob("*.json"))


def _histories() -> list[History]:
    return [read_history(path) for path in sorted((_RESULTS / "history").glob("*.jsonl"))]


def _path(path: Path) -> str:
    return path.relative_to(pages.ROOT).as_posix()


def _refused(what: str) -> int:
    print(what, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
