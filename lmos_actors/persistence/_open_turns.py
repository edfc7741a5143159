"""A reader of the turns in progress in a store. It does not change the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import attrs
import msgspec

from ._keys import parts_of, range_of
from ._sessions import STEPS, TURN_STEPS, TURNS, KeptTurn
from ._store import records_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._store import Paged


@attrs.frozen
class TurnInProgress:
    """A turn that is running, or that the agent will resume at its next start. `began` is Unix time.

    `resumed` is the number of resumptions. `wrong` is the reason why the turn will be given up, or empty if
    no reason is known.
    """

    agent: str
    owner: str
    session: str
    began: float
    resumed: int
    steps: int
    text: str
    wrong: str = ""


def turns_in(store: Paged) -> Iterator[TurnInProgress]:
    """Yield the turns in progress of all agents, ordered by agent, owner and session.

    Raise StoreFailed.
    """
    for key, value in records_of(store, TURNS):
        agent, owner, session = parts_of(key, 3)
        start, stop = range_of(key)
        steps = len(store.scan(STEPS, start=start, stop=stop, limit=TURN_STEPS))
        facts: dict[str, Any] = {"began": 0.0, "resumed": 0, "text": "", "wrong": "it cannot be read"}
        try:
            kept = msgspec.json.decode(value, type=KeptTurn)
            wrong = "it has recorded more than is kept" if kept.is_too_large else ""
            facts = {"began": kept.at, "resumed": kept.resumed, "text": kept.text, "wrong": wrong}
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass
        yield TurnInProgress(agent=agent, owner=unquote(owner), session=session, steps=steps, **facts)
