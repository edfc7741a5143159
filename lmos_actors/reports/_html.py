"""One self-contained HTML file for people: it fetches nothing, and is readable without a network."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from typing import TYPE_CHECKING, Any

from ._html_data import page_data
from ._html_logs import keep_logs, packed
from ._messages import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._results import FileResult

MOST_RECORDS = 200_000
"""Most log records on a page; an answered message takes three."""

STYLES = (
    "live/page/base.css",
    "live/page/diagram.css",
    "live/page/chart.css",
    "style.css",
    "views.css",
)
SCRIPTS = (
    "inflate.js",
    "live/page/base.js",
    "unpack.js",
    "live/page/log.js",
    "live/page/verdict.js",
    "live/page/chart.js",
    "verdicts.js",
    "story.js",
    "timeline.js",
    "live/page/diagram.js",
    "sequence.js",
    "tree.js",
    "series.js",
    "app.js",
)
"""The parts of the page's script, in order; those with a folder belong to the page of a node as well."""


def html_page(
    results: Sequence[FileResult], *, title: str, most: int = MOST_RECORDS, is_log: bool = False
) -> str:
    """Return a page that shows results: verdicts, timelines, messages, trees and series.

    At most `most` records of the runs' logs are put into the page, most of them from failed runs; the page
    reports what was left out. The same results give the same page. With `is_log` the results are the runs in
    a message log, and the page does not show how they ended. The page fetches nothing from elsewhere, and
    only its own script may run in it.
    """
    runs = [run for result in results for run in result.runs]
    kept = keep_logs(runs, most)
    data = clean(page_data(results, title, kept) | ({"log": True} if is_log else {}))
    style, script = _joined(STYLES), "(() => {\n'use strict';\n" + _joined(SCRIPTS) + "})();\n"
    page: str = _template().render(
        title=data["title"],
        policy=policy(style, script),
        style=style,
        script=script,
        report=packed(json.dumps(data, separators=(",", ":"))),
        logs=[(index, packed("\n".join(part.lines))) for index, part in sorted(kept.items())],
        files=[
            (file["name"], file["passed"], len(result.runs), file["exit_code"])
            for file, result in zip(data["files"], results, strict=True)
            if not is_log
        ],
        notes=[note for file in data["files"] for note in file["notes"]],
        cut=data["cut"],
    )
    return page


def policy(style: str, script: str) -> str:
    """Return a Content-Security-Policy that allows this style and this script, and nothing else."""
    allowed = f"style-src {_hash(style)}; script-src {_hash(script)}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _joined(names: tuple[str, ...]) -> str:
    return "".join(_part(name) for name in names)


def _part(name: str) -> str:
    from importlib.resources import files  # late: only pages need it

    # by its path: importing the other package would load a server
    place = name if "/" in name else f"reports/page/{name}"
    return files("lmos_actors").joinpath(*place.split("/")).read_text(encoding="utf-8")


@cache
def _template() -> Any:
    # jinja2 takes long to import, and most runs write no page
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(_part("page.html"))
