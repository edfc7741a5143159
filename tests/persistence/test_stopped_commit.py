"""A process that stands still in a commit (SIGSTOP): deadlines of its callers hold, and nothing is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import trio

from lmos_actors import DeadlineExceeded, open_node
from tests.persistence.stopped_commit import Counter

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGSTOP")
async def test_a_process_that_stands_still_in_a_commit(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.persistence.stopped_commit", str(tmp_path / "counter.db")]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        url = (await process.stdout.receive_some()).decode().strip()
        async with open_node() as node:
            ref = await node.consume(Counter, f"{url}/agents/counter")
            assert await ref.invoke(Counter.add) == 1
            keyed = ref.retrying(key="second")
            for _ in range(2):
                with trio.fail_after(5), pytest.raises(DeadlineExceeded):
                    await keyed.within(0.3).invoke(Counter.add)
            process.send_signal(signal.SIGCONT)
            assert await keyed.invoke(Counter.add) == 2
            assert await ref.invoke(Counter.add) == 3
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
