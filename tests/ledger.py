"""The ledger of the house: the lines that each feature has, and those that it may have (`tests/HOUSE.toml`).

`python -m tests.ledger` prints both, and what is wrong. The rules are at the head of the ledger.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct, ValidationError, convert

from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

KINDS: Final = {
    "code": (("lmos_actors/", "agents/"), (".py", ".html", ".css", ".js", ".txt")),
    "tests": (("tests/",), (".py",)),
    "docs": (("docs/", "README.md", "scenarios/"), (".md", ".yaml")),
}
"""For each kind of lines: where its files are, and how the names of those end that count."""

APART: Final = re.compile(r"__pycache__|(^|/)\.|^docs/changes/(?!README\.md)")
"""Files that belong to no feature: caches, and change fragments, which come and go."""


class Lines(Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers of lines."""

    code: int = 0
    tests: int = 0
    docs: int = 0


class Raise(Lines, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lines that a budget has been given since the ledger began; a negative number takes some away."""

    why: Annotated[str, Meta(pattern=r"\w+\W+\w+\W+\w+")]


class Feature(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of the ledger."""

    paths: tuple[str, ...]
    start: Lines = Lines()
    raised: tuple[Raise, ...] = ()

    def budget(self, kind: str) -> int:
        """Return how many lines of a kind the feature may have."""
        return getattr(self.start, kind) * 11 // 10 + sum(getattr(each, kind) for each in self.raised)


# All starts together: a file that moves takes its lines to the start of another feature, and the sum stays.
BEGAN: Final = Lines(code=203_749, tests=211_031, docs=40_345)


def read_ledger(text: str) -> dict[str, Feature]:
    """Return the features by names such as `lab.explore`. Raise ValueError, which names a malformed one."""
    found: dict[str, Feature] = {}
    for wing, entries in tomllib.loads(text).items():
        for name, entry in entries.items():
            try:
                found[f"{wing}.{name}"] = convert(entry, Feature)
            except ValidationError as error:
                raise ValueError(f"{wing}.{name}: {error}") from error
    return found


def house_files() -> dict[str, int]:
    """Return the number of lines of each file that is to belong to a feature, by its path."""
    tops = [ROOT / top for places, _ in KINDS.values() for top in places]
    files = sorted(path for top in tops for path in (top, *top.rglob("*")) if path.is_file())
    names = {path.relative_to(ROOT).as_posix(): path for path in files}
    return {name: path.read_bytes().count(b"\n") for name, path in names.items() if not APART.search(name)}


def owners(features: Mapping[str, Feature], files: Iterable[str]) -> dict[str, set[tuple[str, str]]]:
    """Return whose each file is, and by which path: the longest one counts. In a good ledger it is one."""
    paths = [(name, path) for name, each in features.items() for path in each.paths]
    patterns = {path: re.compile(re.escape(path).replace(r"\*", "[^/]*") + "(/.*)?") for _, path in paths}
    found: dict[str, set[tuple[str, str]]] = {}
    for file in files:
        near = [(name, path) for name, path in paths if file.startswith(path.partition("*")[0])]
        claims = [(name, path) for name, path in near if patterns[path].fullmatch(file)]
        longest = max((len(path) for _, path in claims), default=0)
        found[file] = {claim for claim in claims if len(claim[1]) == longest}
    return found


def lines_of(features: Mapping[str, Feature], files: Mapping[str, int]) -> dict[str, Counter[str]]:
    """Return the lines of each feature by their kinds."""
    found = {name: Counter[str]() for name in features}
    for file, claims in owners(features, files).items():
        kinds = [
            kind for kind, (tops, ends) in KINDS.items() if file.startswith(tops) and file.endswith(ends)
        ]
        for name, _ in claims:
            found[name].update(dict.fromkeys(kinds, files[file]))
    return found


def faults(features: Mapping[str, Feature], files: Mapping[str, int], began: Lines = BEGAN) -> Iterator[str]:
    """Yield what breaks a rule of the ledger, and what to do about it."""
    found = owners(features, files)
    for file, claims in found.items():
        if len(claims) != 1:
            names = " and ".join(sorted(name for name, _ in claims)) or "no feature"
            yield f"{file} belongs to {names}: it needs a path in one, longer than those in others"
    paths = {(name, path) for name, each in features.items() for path in each.paths}
    for name, path in sorted(paths.difference(*found.values())):
        yield f"{name}: no file belongs to it by {path}: correct the path, or remove it"
    for kind in KINDS:
        have, had = sum(getattr(each.start, kind) for each in features.values()), getattr(began, kind)
        if have != had:
            yield f"all starts have {have:,} lines of {kind}, not {had:,}: a budget rises in `raised` alone"
    for name, lines in lines_of(features, files).items():
        for kind in KINDS:
            if (over := lines[kind] - features[name].budget(kind)) > 0:
                yield f"{name}: {over:,} lines of {kind} over budget: delete some, or raise it and say why"


def table(features: Mapping[str, Feature], files: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines and the budgets of each wing and its features, and of the house."""
    lines = lines_of(features, files)
    yield " " * 32 + "".join(f"{kind:>10}{'budget':>10}" for kind in KINDS)
    wings_and_features = dict.fromkeys(row for name in features for row in (name.split(".")[0], name))
    for row in (*wings_and_features, "the house"):
        members = [name for name in features if row in (name, name.split(".")[0], "the house")]
        sums = ((sum(lines[each][kind] for each in members), kind) for kind in KINDS)
        yield f"{row:32}" + "".join(
            f"{has:>10,}{sum(features[each].budget(kind) for each in members):>10,}" for has, kind in sums
        )


if __name__ == "__main__":
    ledger, house = read_ledger((ROOT / "tests/HOUSE.toml").read_text(encoding="utf-8")), house_files()
    wrong = list(faults(ledger, house))
    print(*table(ledger, house), *wrong, sep="\n")
    sys.exit(bool(wrong))
