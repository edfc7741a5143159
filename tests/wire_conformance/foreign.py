"""Peers in Node.js, where there is one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "foreign.cjs"
NODE = shutil.which("node")


def has_websocket() -> bool:
    """Whether Node has a WebSocket of its own, if need be behind a flag (from 20.10 on)."""
    if NODE is None:
        return False
    check = [NODE, "--experimental-websocket", "-e", "process.exit(typeof WebSocket === 'function' ? 0 : 1)"]
    return subprocess.run(check, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def ws_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give a folder into which npm has installed `ws`; skip where that cannot be."""
    npm = shutil.which("npm")
    if NODE is None or npm is None:
        pytest.skip("there is no Node.js here")
    folder = tmp_path_factory.mktemp("npm")
    install = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder), "ws@8"]
    try:
        done = subprocess.run(install, capture_output=True, text=True, check=False, timeout=30, cwd=folder)
    except subprocess.TimeoutExpired:
        pytest.skip("npm cannot install ws: it takes too long")
    if done.returncode != 0:
        pytest.skip(f"npm cannot install ws: {done.stderr.strip()[-200:]}")
    return str(folder)
