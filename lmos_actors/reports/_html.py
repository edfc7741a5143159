"""One HTML file for people: everything in it, nothing fetched, readable without a network."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ._html_data import page_data
from ._html_logs import keep_logs, packed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._results import FileResult, RunResult

MOST_RECORDS = 200_000
"""How many records of message logs a page holds; a message that is answered takes three."""

STYLES = ("style.css", "views.css")
SCRIPTS = (
    "inflate.js",
    "base.js",
    "log.js",
    "verdicts.js",
    "story.js",
    "timeline.js",
    "diagram.js",
    "sequence.js",
    "tree.js",
    "series.js",
    "app.js",
)
"""The parts of the page's script, in the order in which they are put together."""


def html_page(
    results: Sequence[FileResult],
    *,
    title: str,
    again: Callable[[FileResult, RunResult], str] = lambda result, run: "",
    most: int = MOST_RECORDS,
) -> str:
    """Give a page that shows results: verdicts, timelines, messages, trees and series.

    `again` gives the command that repeats a run. Of the logs that the runs have kept, at most `most` records
    are put into the page, those of failed runs first; the page says what was left out. The same results
    give the same page. Nothing in it is fetched from elsewhere, and only its own script may run in it.
    """
    runs = [run for result in results for run in result.runs]
    kept = keep_logs(runs, most)
    data = page_data(results, title, kept, again)
    style, script = _joined(STYLES), "(() => {\n'use strict';\n" + _joined(SCRIPTS) + "})();\n"
    return _template().render(
        title=title.encode("utf-8", "backslashreplace").decode(),
        policy=policy(style, script),
        style=style,
        script=script,
        report=packed(json.dumps(data, default=repr, separators=(",", ":"), allow_nan=False)),
        logs=[(index, packed("\n".join(part.lines))) for index, part in sorted(kept.items())],
        files=[
            (result.name, sum(run.ok for run in result.runs), len(result.runs), result.exit_code())
            for result in results
        ],
    )


def policy(style: str, script: str) -> str:
    """Give a Content-Security-Policy that allows this style and this script, and nothing else."""
    allowed = f"style-src {_hash(style)}; script-src {_hash(script)}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _joined(names: tuple[str, ...]) -> str:
    return "".join(_part(name) for name in names)


def _part(name: str) -> str:
    return files(__package__ or "").joinpath("page", name).read_text(encoding="utf-8")


@cache
def _template() -> Any:
    # jinja2 takes long to import, and most runs write no page
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(_part("page.html"))
