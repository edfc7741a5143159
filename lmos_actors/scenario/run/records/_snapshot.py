"""The snapshot of a run at one instant: the tree, every agent's state and mailbox, the last messages.

A snapshot is plain data without secrets; long values are cut. Taking a snapshot does not change the run.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from lmos_actors._core import encode_plain, plain
from lmos_actors.actors import Ref, conceal, fields_of, message_of
from lmos_actors.supervision import agents_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lmos_actors.actors import Slot
    from lmos_actors.supervision import Supervisor

MESSAGES: Final = 5
"""Maximum number of messages of one mailbox, and of runs of one agent, in a snapshot."""

RECENT: Final = 20
"""The number of last records in a snapshot."""

LONGEST: Final = 2_000
"""Maximum length of one value as JSON; of a longer value, the start of the text is kept."""


@attrs.frozen(kw_only=True)
class AgentSnapshot:
    """The state of one agent. `state` has its fields; None while the agent is down."""

    path: str
    class_name: str
    status: str
    incarnation: int
    state: dict[str, Any] | None
    waiting: int
    size: int
    messages: tuple[dict[str, Any], ...]
    running: tuple[dict[str, Any], ...]


@attrs.frozen(kw_only=True)
class Snapshot:
    """A run at an instant of virtual time, after its record number `n`."""

    at: float
    n: int
    tree: tuple[str, ...]
    agents: tuple[AgentSnapshot, ...]
    recent: tuple[str, ...]


def take_snapshot(
    root: Supervisor, *, at: float, n: int, tree: Sequence[str], recent: Sequence[str]
) -> Snapshot:
    """Return a snapshot of all agents of a tree."""
    agents = tuple(agent_snapshot(slot) for slot in agents_of(root))
    return Snapshot(at=at, n=n, tree=tuple(tree), agents=agents, recent=tuple(recent[-RECENT:]))


def agent_snapshot(slot: Slot) -> AgentSnapshot:
    """Return a snapshot of one agent."""
    agent: Any = slot.agent
    mailbox = slot.mailbox_statistics()
    runs: Iterable[Any] = slot.extra.runs if slot.extra is not None else ()
    return AgentSnapshot(
        path=slot.path,
        class_name="" if agent is None else str(agent.__contract__.title),
        status=slot.status,
        incarnation=slot.incarnation,
        state=None if agent is None else state_of(agent),
        waiting=mailbox.depth,
        size=mailbox.size,
        messages=tuple(islice(_messages(slot.queue), MESSAGES)),
        running=tuple(islice(_messages(run.envelope for run in runs), MESSAGES)),
    )


def state_of(agent: Any) -> dict[str, Any]:
    """Return the fields of an agent by name."""
    cls = cast("Any", type(agent))
    fields = fields_of(cls, agent.__dict__)
    return {name: _displayable(value, secrecy) for name, (value, secrecy) in fields.items()}


def _messages(items: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for item in items:
        message = message_of(item)
        if message is not None:
            sender = message.sender.path if message.sender is not None else "user"
            given = {
                name: _displayable(value, secrecy) for name, (value, secrecy) in message.values().items()
            }
            yield {"verb": message.verb, "affordance": message.name, "from": sender, "input": given}


def _displayable(value: Any, secrecy: Any) -> Any:
    # a ref shows only its path, so it is safe even where the type of its field is unknown
    shown = plain(value if _is_refs(value) else conceal(value, secrecy))
    text = encode_plain({"": shown})[4:-1]
    return shown if len(text) <= LONGEST else text[:LONGEST].decode(errors="replace") + "..."


def _is_refs(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(map(_is_refs, value))  # pyright: ignore[reportUnknownArgumentType]
    return isinstance(value, Ref)
