"""The commands of the guide to deployments: run in their order, in a folder with its files."""

from __future__ import annotations

import re
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.commands import called, surroundings
from tests.docs.test_documents import DOCS, agrees, blocks, commands

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCKS = blocks((DOCS / "guides/deploy.md").read_text(encoding="utf-8"))
CUT = [
    block
    for block in blocks((DOCS / "guides/break-connections.md").read_text(encoding="utf-8"))
    if block.title == "cut.yaml"
]
SHOWN = ("7100", "8080")
"""The ports that the page shows; here others are used, which are free."""


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """An environment in which no other deployment runs; its folder is one with a short name, for a socket."""
    with tempfile.TemporaryDirectory(prefix="lmos") as folder:
        yield {**surroundings(), "XDG_RUNTIME_DIR": folder, "NO_COLOR": "1"}


def free_ports() -> dict[str, str]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in SHOWN]
    found = [str(each.getsockname()[1]) for each in held]
    for each in held:
        each.close()
    return dict(zip(SHOWN, found, strict=True))


def test_what_the_guide_shows_alone_is_right_in_its_file(tmp_path: Path) -> None:
    files = {block.title: block.body for block in BLOCKS if block.title}
    page, group = [yaml.safe_load(block.body) for block in BLOCKS if block.kind == "yaml" and not block.title]
    whole = yaml.safe_load(files["desk.yaml"])
    whole["groups"] |= group
    whole |= page
    del whole["vars"]
    (tmp_path / "desk.py").write_text(files["desk.py"], encoding="utf-8")
    (tmp_path / "desk.yaml").write_text(yaml.safe_dump(whole, sort_keys=False), encoding="utf-8")
    ran = called(("validate", "desk.yaml"), tmp_path, timeout=50)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "words",
    [
        ["story.yaml", "--check-determinism", "off"],
        ["story.yaml", "--set", "world=process"],
        ["cut.yaml", "--check-determinism", "off"],
    ],
    ids=" ".join,
)
def test_the_stories_of_the_guides_pass(tmp_path: Path, words: list[str]) -> None:
    ports = free_ports()
    for block in (*BLOCKS, *CUT):
        if block.title:
            text = re.sub("|".join(SHOWN), lambda found: ports[found[0]], block.body)
            (tmp_path / block.title).write_text(text, encoding="utf-8")
    ran = called(("run", *words), tmp_path, timeout=200)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_commands_of_the_guide_print_what_it_shows(tmp_path: Path, environment: dict[str, str]) -> None:
    ports = free_ports()

    def placed(text: str) -> str:
        return re.sub("|".join(SHOWN), lambda found: ports[found[0]], text)

    for block in BLOCKS:
        if block.title:
            (tmp_path / block.title).write_text(placed(block.body), encoding="utf-8")
    examples = [block for block in BLOCKS if "tests/deployment/test_guide.py" in block.marker]
    try:
        for block in examples:
            for command in commands(block):
                words = [placed(word) for word in command.arguments]
                ran = called(words, tmp_path, timeout=120, environment=environment)
                output = ran.stdout + ran.stderr
                assert ran.returncode == 0, (words, output)
                assert agrees(placed(command.listing), output), f"{words} prints\n{output}"
    finally:
        called(("down", "desk.yaml"), tmp_path, timeout=60, environment=environment)
    assert len(examples) == 9
    left = [path for path in Path(environment["XDG_RUNTIME_DIR"]).rglob("*") if not path.is_dir()]
    assert left == []
