"""The desk that passes agents' questions to the agent `approvals`, which the first question starts.

A question is asked again for as long as it has no answer: when `approvals` crashes, its successor knows the
question by its key. When the node ends, the waiting run ends with its agent, and asks again after a restart.
"""

from __future__ import annotations

from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import trio

from lmos_actors.actors import RUNNING, Ref, client_of, current_run, paths_of_request
from lmos_actors.errors import (
    AgentDied,
    AgentUnavailable,
    ConfigError,
    MailboxFull,
    NotFound,
    StartFailed,
    WrongState,
)
from lmos_actors.supervision import ChildSpec, class_at

from ._agent import MOST_ASKED, NAME, TOO_MANY, Approvals, failure
from ._askers import Askers
from ._clocks import Clocks
from ._kept import Approval, Asking
from ._offers import Offers
from ._waits import Waits

if TYPE_CHECKING:
    from lmos_actors.actors import OwnTask, Run, Runtime, Slot
    from lmos_actors.errors import ActionFailed
    from lmos_actors.supervision import Supervisor

    from ._offers import Offer
    from ._options import ApprovalOptions

LONGEST_TEXT: Final = 4_000
"""Characters of a question."""

LONGEST_KEY: Final = 200
"""Characters of its key."""

LONGEST_WAIT: Final = 366 * 86_400.0
"""Seconds until its deadline."""


def approvals_spec(limits: ApprovalOptions) -> ChildSpec[Approvals]:
    """Return the spec of the agent `approvals`. It has nothing to drain: questions go on waiting."""
    return ChildSpec(NAME, partial(Approvals, limits=limits), shutdown="brutal")


class ApprovalDesk:
    """The desk that takes the questions of one node's agents; `Agent.approve` finds it in the `Runtime`.

    When another node reports that it asks a person, clocks stand still for at most `seconds`.
    """

    def __init__(self, rt: Runtime, root: Supervisor, seconds: float, limits: ApprovalOptions) -> None:
        self._rt = rt
        self._limits = limits
        self._root = root
        self._starting = trio.Lock()
        self.offers = Offers()
        """The ways to the chat users who are asked the questions of their turns."""
        self.clocks = Clocks()
        self.waits = Waits(rt, self.clocks, seconds)
        """The questions that stand, of this node and of others that it has asked."""
        self.askers = Askers()
        """The runs that ask."""

    @property
    def agent(self) -> Slot | None:
        """The agent `approvals`, None while there is none."""
        resolver = self._rt.resolver
        found: Any = None if resolver is None else resolver.at(NAME)
        return found if found is not None and class_at(found) is Approvals else None

    def is_at(self, name: str) -> bool:
        """Return whether a public name is the name of the agent `approvals`, if that agent exists."""
        return name == NAME and self.agent is not None

    async def ask(
        self,
        slot: Slot,
        text: str,
        data: Any,
        key: str,
        expires: float,
        *,
        reuse: bool = False,
        reworded: Literal["fail", "new"] = "fail",
    ) -> bool:
        """Wait for the decision on a question of an agent. See `Agent.approve`."""
        if reworded not in ("fail", "new"):
            raise ValueError(f"approve() needs reworded='fail' or 'new', not {reworded!r}")
        question = self._question(slot, text, data, key, expires)
        asking = Asking(self.askers.name(question.id), shared=reuse, replaces=reworded == "new")
        paths = paths_of_request()
        with self.waits.during(question, current_run()):
            offer = self.offers.of(*paths) or _offer_of(current_run())
            found = await self._decision(question, asking, offer)
        return found.state == "approved"

    async def ask_once(
        self,
        slot: Slot,
        text: str,
        data: Any,
        form: dict[str, Any] | None,
        expires: float,
        caller: str | None,
        run: Run | OwnTask | None,
    ) -> Approval:
        """Wait for the decision on a question that ends with the run that asks; see `Approver`."""
        question = self._question(slot, text, data, "once", expires)
        asked = msgspec.structs.replace(question, key=question.id, form=form, once=True)
        with self.waits.during(asked, current_run(), run):
            offer = self.offers.of(caller) or _offer_of(current_run(), run)
            return await self._decision(asked, Asking(question.id), offer)

    async def _decision(self, question: Approval, asking: Asking, offer: Offer | None) -> Approval:
        """Return the approval once its wait has ended."""
        with self.offers.for_question(question.id, offer):
            while True:
                ref = await self._started()
                try:
                    return await ref.invoke(
                        Approvals.ask, question, asking.run, asking.shared, asking.replaces
                    )
                except MailboxFull:
                    raise failure(TOO_MANY, 503, f"{MOST_ASKED} calls wait for people already") from None
                except (AgentDied, AgentUnavailable):
                    await self._wait_running(ref)

    def _question(self, slot: Slot, text: str, data: Any, key: str, expires: Any) -> Approval:
        if slot.state < RUNNING:
            raise RuntimeError(
                "approve() waits for a person, and a lifespan holds up the start of all that come after: use "
                "self.nursery.start_soon(...) there"
            )
        for what, value, most in (("text", text, LONGEST_TEXT), ("key", key, LONGEST_KEY)):
            if type(value) is not str:
                raise TypeError(f"approve() needs a str as {what}, not {value!r}")
            if not 0 < len(value) <= most:
                raise _invalid(f"a {what} has 1 to {most} characters, not {len(value)}: {value[:40]!r}")
        if "\0" in key:
            raise _invalid(f"a key has no NUL: {key[:40]!r}")
        is_number = isinstance(expires, int | float) and not isinstance(expires, bool) and isfinite(expires)
        if not is_number or not 0 < expires <= LONGEST_WAIT:
            raise ValueError(
                f"approve() needs expires= as seconds above 0, at most {LONGEST_WAIT:g}, not {expires!r}"
            )
        try:
            plain = msgspec.json.encode(msgspec.to_builtins((text, key, data), str_keys=True))
        except (UnicodeEncodeError, RecursionError) as error:
            raise _invalid(f"it has what JSON cannot have: {error}") from None
        most = self._limits.data_bytes
        if len(plain) > most:
            raise _invalid(f"its data has at most {most} bytes as JSON, not {len(plain)}")
        entropy = self._rt.entropy
        now = entropy.now().timestamp()
        return Approval(
            id=entropy.new_id(),
            agent=slot.path,
            key=key,
            text=text,
            data=msgspec.json.decode(plain)[-1],
            asked=now,
            expires=now + float(expires),
        )

    async def _started(self) -> Ref[Approvals]:
        async with self._starting:
            agent = self.agent
            if agent is not None:
                return Ref(agent)
            if self._rt.resolver is not None and self._rt.resolver.at(NAME) is not None:
                raise ConfigError(
                    f"the node's own agent {NAME!r}, which asks people, cannot start: another agent has that "
                    "name, rename it",
                    NAME,
                )
            try:
                return await self._root.start_child(approvals_spec(self._limits))
            except StartFailed as error:
                raise error.__cause__ or error from None
            except WrongState:  # the node ends
                return await trio.sleep_forever()

    async def _wait_running(self, ref: Ref[Approvals]) -> None:
        """Wait until `approvals` runs again; when the node ends, wait until the waiting run is ended."""
        try:
            await ref.ready()
        except (NotFound, AgentUnavailable):
            if self._rt.ended:
                await trio.sleep_forever()
            await trio.lowlevel.checkpoint()


def _offer_of(*runs: Run | OwnTask | None) -> Offer | None:
    """Return the offer to the user of a client that waits for one of these runs; None if there is none."""
    client = client_of(*runs)
    return None if client is None else client.offer


def _invalid(text: str) -> ActionFailed:
    """Return the failure of an invalid question, whose text may come from a caller or a model."""
    return failure("QUESTION_INVALID", 400, f"this cannot be asked: {text}")
