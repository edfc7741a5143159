"""The smallest agents there are: what goes in comes out, at once or a little later."""

from __future__ import annotations

from typing import Any

import trio

from lmos_actors import Agent, Progress, action


class Echo(Agent):
    """Gives back what it is given: `say` is a turn, done in one step; `say_slowly` needs time."""

    @action
    def say(self, text: str) -> str:
        """Give the text back."""
        return text

    @action
    async def say_slowly(self, progress: Progress[float], text: str, seconds: float = 0.1) -> str:
        """Give the text back after some seconds, telling in quarters how far it is."""
        for quarter in range(1, 5):
            await trio.sleep(seconds / 4)
            progress.report(quarter / 4)
        return text

    @action
    def reflect(self, anything: Any, /) -> Any:
        """Give the whole input back, whatever it is."""
        return anything
