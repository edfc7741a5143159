"""The ledger of the house (`tests/HOUSE.toml`): each file has its feature, each feature its budget."""

from __future__ import annotations

import pytest

from tests.ledger import KINDS, Lines, faults, house_files, lines_of, owners, read_ledger, table
from tests.source import ROOT

LEDGER = """
[runtime.chat]
paths = ["lmos_actors/chat", "tests/chat"]
start = { code = 100, tests = 50 }

[lab.search]
paths = ["lmos_actors/chat/_search*", "docs/search.md"]
start = { code = 29, docs = 9 }
"""
FILES = {
    "lmos_actors/chat/_turn.py": 110,  # a tenth more than its start
    "lmos_actors/chat/_search/_words.py": 15,
    "lmos_actors/chat/_search.py": 16,  # and 31 are a tenth more than 29
    "lmos_actors/chat/schema.json": 70_000,
    "tests/chat/test_turn.py": 50,
    "tests/chat/recorded.jsonl": 9_000,
    "docs/search.md": 9,
}
BEGAN = Lines(code=129, tests=50, docs=9)


def found(ledger: str, **more: int) -> list[str]:
    """Return the faults of a made-up ledger, with files that are longer, or there besides."""
    files = FILES | {name.replace("__", "/") + ".py": lines for name, lines in more.items()}
    return list(faults(read_ledger(ledger), files, BEGAN))


def test_every_file_has_one_feature_and_no_feature_is_over_its_budget() -> None:
    ledger = read_ledger((ROOT / "tests/HOUSE.toml").read_text(encoding="utf-8"))
    assert "\n".join(faults(ledger, house_files())) == ""


def test_the_sums_of_the_features_are_the_house() -> None:
    ledger, files = read_ledger((ROOT / "tests/HOUSE.toml").read_text(encoding="utf-8")), house_files()
    python = sum(path.read_bytes().count(b"\n") for path in (ROOT / "tests").rglob("*.py"))
    assert sum(lines["tests"] for lines in lines_of(ledger, files).values()) == python
    last = list(table(ledger, files))[-1]
    assert last.split()[:2] + last.split()[4:5] == ["the", "house", f"{python:,}"]
    assert len(last.split()) == 2 + 2 * len(KINDS)


def test_a_ledger_that_is_kept_has_no_faults() -> None:
    assert found(LEDGER) == []
    assert [line.split() for line in table(read_ledger(LEDGER), FILES)][1:] == [
        ["runtime", "110", "110", "50", "55", "0", "0"],
        ["runtime.chat", "110", "110", "50", "55", "0", "0"],
        ["lab", "31", "31", "0", "0", "9", "9"],
        ["lab.search", "31", "31", "0", "0", "9", "9"],
        ["the", "house", "141", "141", "50", "55", "9", "9"],
    ]


def test_lines_over_budget_are_told_with_what_to_do() -> None:
    assert found(LEDGER, lmos_actors__chat___turn=113) == [
        "runtime.chat: 3 lines of code over budget: delete some, or raise it and say why"
    ]
    assert found(LEDGER, tests__chat__test_more=6) == [
        "runtime.chat: 1 lines of tests over budget: delete some, or raise it and say why"
    ]


@pytest.mark.parametrize(
    ("raised", "over"),
    [
        ('{ code = 40, why = "Chats can be searched." }', 0),
        ('{ code = 20, why = "Chats can be searched." }, { code = 20, why = "By their dates, too." }', 0),
        ('{ code = 39, why = "Chats can be searched." }', 1),
        ('{ tests = 40, why = "Chats can be searched." }', 40),
        ('{ code = 40, why = "Chats can be searched." }, { code = -2, why = "Words went away again." }', 2),
    ],
)
def test_a_budget_rises_with_a_reason(raised: str, over: int) -> None:
    ledger = LEDGER.replace("tests = 50 }", f"tests = 50 }}\nraised = [{raised}]")
    assert sum(int(fault.split()[1]) for fault in found(ledger, lmos_actors__chat___turn=150)) == over


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("raised = [{ code = 40 }]", "`why`"),
        ('raised = [{ code = 40, why = "" }]', "raised"),
        ('raised = [{ code = 40, why = "more lines" }]', "raised"),
        ('raised = [{ docs = 40, line = 9, why = "Chats can be searched." }]', "`line`"),
        ("budget = { code = 400 }", "`budget`"),
    ],
)
def test_a_budget_does_not_rise_without_a_reason(line: str, named: str) -> None:
    with pytest.raises(ValueError, match=rf"lab\.search: .*{named}"):
        read_ledger(LEDGER + line)


@pytest.mark.parametrize(("old", "new"), [("code = 100", "code = 101"), ("docs = 9", "docs = 8")])
def test_a_start_does_not_change_unless_another_does(old: str, new: str) -> None:
    assert any("all starts have " in fault for fault in found(LEDGER.replace(old, new)))
    moved = LEDGER.replace("code = 100", "code = 101").replace("code = 29", "code = 28")
    assert found(moved, lmos_actors__chat___search=15) == []


def test_a_new_feature_has_no_start() -> None:
    feature = '[lab.sum]\npaths = ["lmos_actors/sum.py"]\nraised = [{ code = 9, why = "Sums of a run." }]'
    assert found(f"{LEDGER}\n{feature}", lmos_actors__sum=9) == []
    assert found(f"{LEDGER}\n{feature}", lmos_actors__sum=10)[0].startswith("lab.sum: 1 lines of code over")


def test_a_file_of_no_feature_is_named() -> None:
    assert found(LEDGER, lmos_actors__chats=1) == [
        "lmos_actors/chats.py belongs to no feature: it needs a path in one, longer than those in others"
    ]


def test_a_file_of_two_features_is_named() -> None:
    fault = found(LEDGER.replace('"docs/search.md"', '"docs/search.md", "tests/chat"'))[0]
    assert fault.startswith("tests/chat/test_turn.py belongs to lab.search and runtime.chat: ")


@pytest.mark.parametrize("path", ["docs/gone.md", "lmos_actors/chat/", "lmos_actors", "docs/s*r*/"])
def test_a_path_that_gives_its_feature_no_file_is_named(path: str) -> None:
    fault = f"lab.search: no file belongs to it by {path}: correct the path, or remove it"
    assert found(LEDGER.replace('"docs/search.md"', f'"docs/search.md", "{path}"')) == [fault]


@pytest.mark.parametrize(
    ("file", "path"),
    [
        ("lmos_actors/chat/a/b.py", "lmos_actors/chat"),
        ("lmos_actors/chat/_searches/_deep/x.py", "lmos_actors/chat/_search*"),
        ("lmos_actors/chat/a/_search.py", "lmos_actors/chat"),  # a star stays in its folder
        ("lmos_actors/chatty.py", None),
        ("lmos_actors/a/lmos_actors/chat/b.py", None),
        ("docs/searchXmd", None),
    ],
)
def test_the_longest_path_to_a_file_counts(file: str, path: str | None) -> None:
    claims = owners(read_ledger(LEDGER), [file])[file]
    assert [each for _, each in claims] == ([path] if path else [])
