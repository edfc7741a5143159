"""The names of a node's runs that ask people; each answer is handed to one run, by its name.

The name is kept with the answer, in a form that reveals nothing. A run with a request key has the same name
in the agent's next incarnation, and so gets the same answer there. This also holds for a chat turn that
survives its process. The name of any other run ends with the process.
"""

from __future__ import annotations

from contextlib import contextmanager
from hashlib import blake2s
from typing import TYPE_CHECKING

import trio

from lmos_actors.actors import current_run, key_of_request, on_run_ended

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any


class Askers:
    """The names of the runs of a node that ask people, from the first question of a run to its end."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._ends: dict[str, trio.Event] = {}
        self._works: dict[str, str] = {}

    def name(self, fresh: str) -> str:
        """Return the name of the current run; a run without a name and without a key is named `fresh`.

        Outside runs, return `fresh`; it names no run, so `end_of` returns None for it.
        """
        run = current_run()
        if run is None:
            return fresh
        known = self._names.get(run)
        if known is not None:
            return known
        path, key = run.slot.path, key_of_request(run)
        name = self._works.get(path) or (fresh if key is None else _hidden(path, key))
        self._names[run] = name
        self._ends[name] = trio.Event()
        on_run_ended(run, lambda: self._ended(run))
        return name

    @contextmanager
    def during(self, path: str, agent: str, work: str) -> Generator[None]:
        """Inside this block, name the runs of the agent at `path` after `work`.

        After a restart, `agent` continues this work.
        """
        self._works[path] = _hidden(agent, work)
        try:
            yield
        finally:
            del self._works[path]

    def _ended(self, run: Any) -> None:
        ended = self._ends.pop(self._names.pop(run), None)  # two runs of one work have one name
        if ended is not None:
            ended.set()

    def end_of(self, name: str) -> trio.Event | None:
        """Return the event that is set at the end of a run; None if the run has ended."""
        return self._ends.get(name)


def _hidden(path: str, key: str) -> str:
    return blake2s(f"{path}\n{key}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
