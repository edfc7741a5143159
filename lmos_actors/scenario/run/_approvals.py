"""Approvals of a run: the story answers what agents ask people, and one that nobody answers fails the run.

People are no part of the network of a file: they decide in the process of the run, whatever its links are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from lmos_actors.actors import Ref
from lmos_actors.approvals import Approval, Approvals
from lmos_actors.errors import ActionFailed, AgentError

from ..model import Refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lmos_actors.actors import Slot

    from ..model import Deciding
    from ._watch import Watch


@attrs.define
class RunApprovals:
    """What the agents of one run ask people. `find` returns the agent `approvals`, None if there is none."""

    find: Callable[[], Slot | None]
    _left: set[str] = attrs.Factory(set[str])
    """The ids of those that the story leaves to their deadline."""

    async def decide(self, step: Deciding, agent: str, watch: Watch, deadline: float) -> str | None:
        """Answer what an agent asks, once it does. Return what was seen instead, None if it is answered."""
        late = isinstance(step, Refuse) and step.by == "deadline"
        state = "expired" if late else "waiting"

        def asked() -> bool:
            return self._asked(agent, step.key, state) is not None

        if not await watch.until(asked, deadline):
            return self._seen(agent)
        approval = self._asked(agent, step.key, state)
        slot = self.find()
        if approval is None or slot is None:  # decided, or the node has ended, in this instant
            return self._seen(agent)
        if late:
            self._left.add(approval.id)
            return None
        verb = Approvals.refuse if isinstance(step, Refuse) else Approvals.accept
        try:
            await Ref[Approvals](slot).invoke(verb, approval.id, step.note)
        except ActionFailed as error:
            return error.detail or str(error)
        except AgentError as error:
            return str(error)
        return None

    def unanswered(self) -> Iterator[Approval]:
        """Yield what nobody has answered: what waits, and what the deadline has refused unasked."""
        for each in self._all():
            if each.state in ("waiting", "gone") or (each.state == "expired" and each.id not in self._left):
                yield each

    def _all(self) -> tuple[Approval, ...]:
        slot = self.find()
        agent = None if slot is None else slot.agent
        return agent.kept() if isinstance(agent, Approvals) else ()

    def _asked(self, agent: str, key: str | None, state: str) -> Approval | None:
        """Return the oldest approval of an agent in that state that has not been left to its deadline."""
        for each in self._all():
            fits = each.agent == agent and each.state == state and key in (None, each.key)
            if fits and each.id not in self._left:
                return each
        return None

    def _seen(self, agent: str) -> str:
        own = [each for each in self._all() if each.agent == agent]
        found = [f'"{each.text}" (key "{each.key}", {each.state})' for each in own]
        return f"it has asked {', '.join(found)}" if found else "it has asked nothing"
