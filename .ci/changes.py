"""The unreleased changes as one text, for the page "Changes" of the site.

`zensical build` loads this module (see `zensical.toml`) and puts the value of `unreleased` where
`docs/changes/README.md` asks for it. Nothing is written to the repository, so that two changes never edit the
same lines.
"""

from pathlib import Path
from typing import Any

FRAGMENTS = Path(__file__).parent.parent / "docs" / "changes"
KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")


def unreleased(folder: Path = FRAGMENTS) -> str:
    """Return a heading for each kind that has fragments, with a list of their texts by file name."""
    parts = [section(kind, sorted(folder.glob(f"*.{kind}.md"))) for kind in KINDS]
    return "\n\n".join(part for part in parts if part)


def section(kind: str, fragments: list[Path]) -> str:
    """Return the heading and the list of one kind, or an empty string without fragments."""
    items = [f"- {' '.join(path.read_text(encoding='utf-8').split())}" for path in fragments]
    return "\n".join([f"### {kind.capitalize()}", "", *items]) if items else ""


def define_env(env: Any) -> None:
    """Register the text as a variable of the site generator's templates."""
    env.variables["unreleased"] = unreleased()
