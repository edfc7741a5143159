"""A tea desk that remembers what each of its guests likes, over sessions and restarts."""

from __future__ import annotations

from functools import partial

from lmos_actors import ChildSpec, SupervisorSpec, sibling
from lmos_actors.facades import ChatTurn, VoiceCall  # noqa: TC001 -- types of an agent are read
from lmos_actors.llm import OpenAIModel
from lmos_actors.thinking import MEMORY_TOOLS, Budget, ThinkingAgent


class TeaDesk(ThinkingAgent):
    """You recommend teas.

    Recall what you know of a guest before you recommend anything. Remember what they like and what they do
    not, in a sentence each, and forget what they ask you to forget.
    """

    tools = (MEMORY_TOOLS,)
    budget = Budget(tokens=20_000, calls=6, tools=6, seconds=60)

    def identity_for(self, turn: ChatTurn | VoiceCall) -> str | None:
        """Return the guest, as the reception says who it is; it is the one client of the desk."""
        guest = turn.metadata.get("guest")
        return f"{turn.principal!r}/{guest}" if guest else turn.principal


tree = SupervisorSpec(
    "tea house",
    [
        ChildSpec("model", partial(OpenAIModel, model="gpt-5-mini")),
        ChildSpec("desk", partial(TeaDesk, model=sibling("model"))),
    ],
)
