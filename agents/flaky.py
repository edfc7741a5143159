"""A worker that crashes: when it is told to, or at every nth job."""

from __future__ import annotations

import trio

from lmos_actors import ActionFailed, Agent, Property, action, prop


class FlakyWorker(Agent):
    """Does jobs. `every` says at which job of a life it crashes; 0 for never."""

    every: int = 0
    pace: float = 0.01
    jobs: Property[int] = prop(default=0, read_only=True)

    @action(concurrency=4)
    async def work(self, job: str) -> str:
        """Do a job; it takes `pace` seconds."""
        self.jobs += 1
        if self.every and self.jobs >= self.every:
            raise RuntimeError(f"job {self.jobs} was one too many")
        await trio.sleep(self.pace)
        return f"{job} done"

    @action
    def crash(self) -> None:
        """Crash, as a mistake in a program would."""
        raise RuntimeError("crashed as told")

    @action
    def refuse(self, why: str) -> None:
        """Fail in a way that callers can expect: the agent lives on."""
        raise ActionFailed(why)
