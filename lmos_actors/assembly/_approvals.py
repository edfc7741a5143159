"""Approvals of one node, as a service: the package is imported when it is first needed."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from lmos_actors.node import NodeService

if TYPE_CHECKING:
    from lmos_actors.actors import Runtime
    from lmos_actors.approvals import Approval, ApprovalDesk, ApprovalOptions, Askers, Clocks, Offers
    from lmos_actors.node import OwnAgents
    from lmos_actors.supervision import ChildSpec, Supervisor


class ApprovalService(NodeService):
    """The service that carries agents' questions to people, on one node; see `Approver` of the actors.

    With `used` the agent `approvals` starts with the node. `seconds` limits how long clocks stand still;
    `limits` are the agent's limits, None for the usual limits.
    """

    name = "approvals"

    def __init__(self, seconds: float, limits: ApprovalOptions | None = None, *, used: bool) -> None:
        self._used = used
        self._given = limits
        self._seconds = seconds

    def children(self) -> tuple[ChildSpec[Any], ...]:
        """Return the agent `approvals`, if it starts with the node."""
        if not self._used:
            return ()
        from lmos_actors.approvals import approvals_spec

        return (approvals_spec(self._limits),)

    def begin(self, rt: Runtime, root: Supervisor) -> None:
        """Become the `Approver` of the node's agents."""
        self._rt, self._root = rt, root
        rt.approvals = self

    def own_agents(self) -> OwnAgents:
        """Return the test by which the agent that decides approvals is recognised."""
        return {"is_approvals": self.is_at}

    @cached_property
    def _desk(self) -> ApprovalDesk:
        from lmos_actors.approvals import ApprovalDesk

        self._used = True
        return ApprovalDesk(self._rt, self._root, self._seconds, self._limits)

    @property
    def _limits(self) -> ApprovalOptions:
        from lmos_actors.approvals import ApprovalOptions

        return self._given or ApprovalOptions()

    async def ask(
        self, slot: Any, text: str, data: Any, key: str, expires: float, *, reuse: bool, reworded: Any
    ) -> bool:
        """Wait for the decision on a question of an agent; see `Agent.approve`."""
        return await self._desk.ask(slot, text, data, key, expires, reuse=reuse, reworded=reworded)

    async def ask_once(
        self, slot: Any, text: str, data: Any, form: Any, expires: float, caller: str | None, run: Any
    ) -> Approval:
        """Wait for the decision on a question that ends with the run that asks; see `Approver`."""
        return await self._desk.ask_once(slot, text, data, form, expires, caller, run)

    def heard(self, request: Any, standing: Any, question: dict[str, Any] | None, *, heeds: bool) -> Any:
        """Note that the node that carries out a request asks a person, or no longer does; see `Approver`."""
        return self._desk.waits.heard(request, standing, question, heeds=heeds)

    def asked(self, request: Any) -> str:
        """Return a text saying that a request waits for a person; "" if it does not."""
        return self._desk.waits.asked(request) if self._used else ""

    @property
    def offers(self) -> Offers:
        """The chat users to whom questions are offered, each in their own turns."""
        return self._desk.offers

    @property
    def clocks(self) -> Clocks:
        """The clocks that stand still while a person is asked."""
        return self._desk.clocks

    @property
    def askers(self) -> Askers:
        """The runs that ask questions, by name."""
        return self._desk.askers

    def is_at(self, name: str) -> bool:
        """Return whether a public name belongs to the agent `approvals`."""
        return self._used and self._desk.is_at(name)
