"""The program of the guide that uses Ray and agents together, run as it stands on a real cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.docs.test_documents import DOCS, blocks
from tests.ray_cluster import cluster, needs_ray

if TYPE_CHECKING:
    from pathlib import Path


@needs_ray
@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.timeout(180)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_agents_and_programs_of_ray_use_each_other(tmp_path: Path) -> None:
    page = blocks((DOCS / "guides/beyond-one-machine.md").read_text(encoding="utf-8"))
    for block in page:
        if block.title is not None and block.title.endswith(".py"):
            (tmp_path / block.title).write_text(block.body, encoding="utf-8")
    with cluster(2) as running:
        environment = {**os.environ, "RAY_ADDRESS": running.address}
        ran = subprocess.run(
            [sys.executable, "main.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
    assert ran.stdout.splitlines()[-1:] == ["6"], ran.stderr
