"""The documents tell the truth: their Python runs, their commands print what is shown, links lead somewhere.

Python blocks of one file share a namespace and run on virtual time; no Python block can be left out. Marker
comments on the line above a block say more about it:

- `<!-- output -->`: a text block that is what the Python block before it prints;
- `<!-- exit: 2 -->`: the exit code of the commands in a shell block, when it is not 0;
- `<!-- not run: why -->`: a shell block whose commands cannot be run here.

In listings `...` stands for any text. Blocks with a title are files in the folder in which the commands run.
"""

from __future__ import annotations

import doctest
import importlib.util
import re
import runpy
import shlex
import sys
import tomllib
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from tests.commands import called
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(
    r"^(?:<!-- *(?P<marker>.*?) *-->\n)?(?P<indent> *)```(?P<kind>[\w-]*)(?P<more>[^\n`]*)\n"
    r"(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
NAMED_FILE = re.compile(r"(?<![\w/])((?:agents|scenarios)/\w+\.(?:py|yaml))(?::([A-Za-z]\w*))?")
SHELL = ("sh", "bash", "console")
LISTING = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

has_face = pytest.mark.skipif(not (ROOT / "lmos_actors/__init__.py").exists(), reason="no public names yet")
has_command = pytest.mark.skipif(importlib.util.find_spec("lmos_actors.cli") is None, reason="no command yet")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: what stands behind the fence, the marker above it, and the fence's line."""

    kind: str
    more: str
    marker: str
    body: str
    line: int

    @property
    def title(self) -> str | None:
        found = re.search(r'title="([^"]+)"', self.more)
        return found[1] if found else None


@dataclass(frozen=True)
class Command:
    """A call of `lmos-actors` in a page: its arguments, the listing below it, the wanted exit code."""

    arguments: list[str]
    listing: str
    code: int


def blocks(text: str) -> list[Block]:
    return [
        Block(
            found["kind"],
            found["more"],
            found["marker"] or "",
            re.sub(f"^{found['indent']}", "", found["body"], flags=re.MULTILINE),
            text.count("\n", 0, found.start("body")),
        )
        for found in BLOCK.finditer(text)
    ]


def commands(block: Block) -> Iterator[Command]:
    """The calls of `lmos-actors` in a shell block: on one or several lines, alone or joined by `&&`."""
    exit_code = re.fullmatch(r"exit: (\d+)", block.marker)
    code = int(exit_code[1]) if exit_code else 0
    lines = re.sub(r"\\\n *", "", block.body).splitlines()
    for number, line in enumerate(lines):
        if block.kind == "console" and not line.startswith("$ "):
            continue
        shown = next((n for n in range(number + 1, len(lines)) if lines[n].startswith("$ ")), len(lines))
        listing = "\n".join(lines[number + 1 : shown]) if block.kind == "console" else ""
        for part in line.removeprefix("$ ").split("&&"):
            words = shlex.split(part, comments=True)
            if words and words[0].rpartition("/")[2] == "lmos-actors":
                yield Command(words[1:], listing, code)


def agrees(listing: str, output: str) -> bool:
    """Whether the output is the listing, `...` standing for anything; nothing but `...` shows nothing."""
    return listing.strip() != "..." and doctest.OutputChecker().check_output(listing + "\n", output, LISTING)


ELSEWHERE = "not run: "
"""Begins the marker of Python that needs more than the package, followed by the test that runs it."""


def run_python(page: str, text: str, printed: pytest.CaptureFixture[str]) -> int:
    """Run the Python blocks of a page in one module, compare what they print, and say how many there were.

    Those that are a file can be imported by those after them.
    """
    module = types.ModuleType("documented")
    del module.__spec__, module.__loader__  # None would be warned of where Python 3.15 shows a traceback
    sys.modules[module.__name__] = module
    output, ran = "", 0
    printed.readouterr()
    for block in blocks(text):
        if block.kind == "python" and not block.marker.startswith(ELSEWHERE):
            exec(compile("\n" * block.line + block.body, page, "exec", dont_inherit=True), vars(module))
            if block.title:
                sys.modules[block.title.removesuffix(".py")] = module
            output, ran = printed.readouterr().out, ran + 1
        elif block.marker == "output":
            assert agrees(block.body, output), (
                f"{page}:{block.line} shows\n{block.body}\nbut it prints\n{output}"
            )
    return ran


def on_virtual_time(*args: Any, clock: trio.abc.Clock | None = None, **options: Any) -> Any:
    return RUN(*args, clock=MockClock(autojump_threshold=0) if clock is None else clock, **options)


RUN = trio.run


def with_blocks(kinds: tuple[str, ...]) -> list[Any]:
    """The pages that have such blocks, as test parameters."""
    pages = [
        page
        for page in PAGES
        if any(
            block.kind in kinds and (block.kind in SHELL or not block.marker.startswith(ELSEWHERE))
            for block in blocks(page.read_text(encoding="utf-8"))
        )
    ]
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages]


@pytest.fixture
def documented(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(trio, "run", on_virtual_time)
    monkeypatch.chdir(tmp_path)
    yield
    for name in [
        name for name, module in sys.modules.items() if getattr(module, "__name__", "") == "documented"
    ]:
        del sys.modules[name]


@has_face
@pytest.mark.usefixtures("documented")
@pytest.mark.parametrize("page", with_blocks(("python",)))
def test_the_python_of_a_page_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_python(str(page), page.read_text(encoding="utf-8"), capsys)


@pytest.mark.slow
@pytest.mark.timeout(300)  # a page has many commands, each with a limit of its own
@has_command
@pytest.mark.parametrize("page", with_blocks(SHELL))
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    found = blocks(page.read_text(encoding="utf-8"))
    for block in found:
        if block.title:
            (tmp_path / block.title).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.title).write_text(block.body, encoding="utf-8")
    folder = tmp_path if any(block.title for block in found) else ROOT
    for block in found:
        if block.kind in SHELL and not block.marker.startswith("not run: "):
            for command in commands(block):
                check(command, folder, f"{page}:{block.line}")


def check(command: Command, folder: Path, where: str) -> None:
    ended = called(tuple(command.arguments), folder, timeout=50)
    output = ended.stdout + ended.stderr
    said = f"{where}: lmos-actors {shlex.join(command.arguments)} ended {ended.returncode}:\n{output}"
    assert ended.returncode == command.code, said
    assert not command.listing or agrees(command.listing, output), said


def test_markers_stand_above_blocks_they_fit() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found = blocks(text)
        for block in found:
            if block.kind == "python" and block.marker.startswith(ELSEWHERE):  # a test of its own runs it
                test = ROOT / block.marker.removeprefix(ELSEWHERE).split()[0]
                assert page.name in test.read_text(encoding="utf-8"), f"{page}:{block.line}"
            elif block.marker.startswith(("exit: ", "not run: ")):
                assert block.kind in SHELL, f"{page}:{block.line}"
            if block.marker == "output":
                assert block.kind == "text", f"{page}:{block.line}"
        known = re.findall(r"^<!-- *(?:output *-->|exit:|not run:)", text, re.MULTILINE)
        marked = [block for block in found if block.marker.startswith(("output", "exit: ", "not run: "))]
        assert len(known) == len(marked), page


def slug(heading: str) -> str:
    """The anchor of a heading, as the documentation builder makes it."""
    words = re.sub(r"[^\w\s-]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower())
    return re.sub(r"[\s-]+", "-", words).strip("-")


def prose(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "`code`", BLOCK.sub("", text))


def broken_links(page: Path, text: str) -> list[str]:
    """Links to a file or a heading that is not there, or from the documentation to something outside it."""
    broken: list[str] = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        outside = page.is_relative_to(DOCS) and not there.is_relative_to(DOCS)
        if (name and not there.is_file()) or outside or (anchor and anchor not in anchors(there, page, text)):
            broken.append(target)
    return broken


def anchors(there: Path, page: Path, text: str) -> list[str]:
    other = text if there == page else there.read_text(encoding="utf-8")
    return [slug(heading) for heading in re.findall(r"^#+ +(.*)$", BLOCK.sub("", other), re.MULTILINE)]


def test_the_links_of_every_page_lead_somewhere() -> None:
    broken = {page: broken_links(page, page.read_text(encoding="utf-8")) for page in PAGES}
    assert {page: links for page, links in broken.items() if links} == {}


def test_every_page_is_in_the_navigation_and_nothing_else_is() -> None:
    nav = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    pages = {str(page.relative_to(DOCS)) for page in PAGES if page.is_relative_to(DOCS)}
    fragments = {page for page in pages if page.startswith("changes/") and page != "changes/README.md"}
    assert sorted(leaves(nav)) == sorted(pages - fragments)


def leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for entry in (nav.values() if isinstance(nav, dict) else nav) for page in leaves(entry)]


def title_of(page: Path) -> str:
    """Return the first heading of a page; the menu shows it too, as `zensical.toml` names no titles."""
    return page.read_text(encoding="utf-8").partition("# ")[2].partition("\n")[0]


@pytest.mark.parametrize("folder", ["tutorial", "guides", "migration", "explanation", "reference"])
def test_an_overview_links_every_page_by_its_title(folder: str) -> None:
    overview = (DOCS / folder / "index.md").read_text(encoding="utf-8")
    links = re.findall(r"\[([^\]]+)\]\(([\w-]+\.md)\)", overview)
    pages = sorted(page for page in (DOCS / folder).glob("*.md") if page.name != "index.md")
    assert [page.name for page in pages if (title_of(page), page.name) not in links] == []


def test_the_page_of_changes_lists_every_fragment_below_its_kind() -> None:
    changes = runpy.run_path(str(ROOT / ".ci/changes.py"))
    listed = changes["unreleased"]().split("\n### ")
    below = {part.lstrip("# ").partition("\n")[0].lower(): part for part in listed}
    fragments = [path for path in (DOCS / "changes").iterdir() if path.name != "README.md"]
    assert len(fragments) == sum(part.count("\n- ") for part in listed)
    for path in fragments:
        text = " ".join(path.read_text(encoding="utf-8").split())
        assert f"\n- {text}" in below[path.suffixes[-2][1:]], path.name


def test_the_site_puts_the_fragments_on_the_page_of_changes() -> None:
    settings = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    macros = settings["plugins"]["macros"]
    registered = types.SimpleNamespace(variables={})
    runpy.run_path(f"{ROOT / macros['module_name']}.py")["define_env"](registered)
    (name,) = registered.variables
    marker = f"{macros['j2_variable_start_string']} {name} {macros['j2_variable_end_string']}"
    assert marker in (DOCS / macros["force_render_paths"]).read_text(encoding="utf-8")


def test_the_agents_and_scenarios_that_are_named_are_in_the_repository() -> None:
    texts = [*PAGES, *sorted((ROOT / "lmos_actors").rglob("*.py"))]
    named = {found for path in texts for found in re.findall(NAMED_FILE, path.read_text(encoding="utf-8"))}
    assert len(named) > 10
    missing = [
        f"{file}:{cls}"
        for file, cls in sorted(named)
        if not (ROOT / file).is_file()
        or (cls and not re.search(rf"^(class|def) {cls}\b|^{cls}\b.* = ", (ROOT / file).read_text(), re.M))
    ]
    assert missing == []


def test_no_font_is_fetched_from_elsewhere() -> None:
    theme = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["theme"]
    assert theme["font"] is False


def test_blocks_and_commands_are_found() -> None:
    console = (
        '<!-- exit: 2 -->\n```console\n$ cd x && .venv/bin/lmos-actors run \\\n "a b"\nfine\n$ ls\n```\n'
    )
    shell, file = blocks(f'{console}\n```yaml title="w.yaml"\na: 1\n```\n')
    assert list(commands(shell)) == [Command(["run", "a b"], "fine", 2)]
    assert (file.title, file.body, file.line) == ("w.yaml", "a: 1\n", 9)


@pytest.mark.parametrize(
    ("listing", "output", "agree"),
    [
        ("a\n...\nc", "a\nb\nb\nc\n", True),
        ("a", "a\n", True),
        ("a", "b\n", False),
        ("...", "a\n", False),
        ("passed in ... s", "passed in 0.31 s\n", True),
    ],
)
def test_a_listing_is_compared(listing: str, output: str, agree: bool) -> None:
    assert agrees(listing, output) == agree


def test_an_example_that_fails_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        run_python("page", "```python\nx = 0\n```\n\n```python\n1 / x\n```\n", capsys)
    with pytest.raises(AssertionError, match="page:6 shows"):
        run_python("page", "```python\nprint(1)\n```\n\n<!-- output -->\n```text\n2\n```\n", capsys)


@pytest.mark.usefixtures("documented")
def test_an_example_runs_on_virtual_time(capsys: pytest.CaptureFixture[str]) -> None:
    text = "```python\nimport trio\ntrio.run(trio.sleep, 1e6)\nprint('done')\n```\n"
    assert run_python("page", f"{text}<!-- output -->\n```text\ndone\n```\n", capsys) == 1


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("# Some `Head` ing!\n")
    good = "# Top\n[x](a.md) [x](a.md#some-head-ing) [x](#top) [x](https://example.org) `[x](c.md)`\n"
    assert broken_links(tmp_path / "page.md", f"{good} [x](a.md#no) [x](b.md) [x](#no)") == [
        "a.md#no",
        "b.md",
        "#no",
    ]
