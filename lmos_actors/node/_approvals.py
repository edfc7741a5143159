"""Approvals of one node: the package is imported when it is first needed."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from lmos_actors.actors import Runtime
    from lmos_actors.approvals import Approval, ApprovalDesk, Askers, Clocks, Offers
    from lmos_actors.supervision import Supervisor, SupervisorSpec

    from ._options import NodeOptions


class NodeApprovals:
    """The way of agents' questions to people, on one node; see `Approver` of the actors."""

    def __init__(self, rt: Runtime, root: Supervisor, *, used: bool, seconds: float) -> None:
        self._rt = rt
        self._root = root
        self._used = used
        self._seconds = seconds

    @cached_property
    def _desk(self) -> ApprovalDesk:
        from lmos_actors.approvals import ApprovalDesk

        self._used = True
        return ApprovalDesk(self._rt, self._root, self._seconds)

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
        """Take what the node of a request says of a person who is asked; see `Approver`."""
        return self._desk.waits.heard(request, standing, question, heeds=heeds)

    def asked(self, request: Any) -> str:
        """Return that a request waits for a person who is asked, as text; "" if it does not."""
        return self._desk.waits.asked(request) if self._used else ""

    @property
    def offers(self) -> Offers:
        """The users of chats to whom questions go in their turns."""
        return self._desk.offers

    @property
    def clocks(self) -> Clocks:
        """The clocks that stand still while a person is asked."""
        return self._desk.clocks

    @property
    def askers(self) -> Askers:
        """The runs that ask, by their names."""
        return self._desk.askers

    def is_at(self, name: str) -> bool:
        """Return whether a public name is that of the agent `approvals`."""
        return self._used and self._desk.is_at(name)


def begin_with_node(options: NodeOptions) -> bool:
    """Return whether the agent starts with the node: as asked, or as clients may decide."""
    lists = () if options.security is None else options.effective_security().access.values()
    return options.approvals or options.allow_operations or any(each.approve for each in lists)


def with_approvals(tree: SupervisorSpec) -> SupervisorSpec:
    """Return the tree with the agent `approvals` as its first child."""
    from lmos_actors.approvals import approvals_spec

    return attrs.evolve(tree, children=(approvals_spec(), *tree.children))
