"""What a viewer may do with agents, and which of them it may talk to."""

from __future__ import annotations

from lmos_actors import Agent, ChildSpec, SupervisorSpec, action, open_node
from lmos_actors.facades import ChatAgent, ChatTurn
from lmos_actors.security import Access, Security
from lmos_actors.supervision import Pool
from lmos_actors.transport import MemoryNetwork
from tests.facades.lives import virtual
from tests.live.watching import SECURITY, as_viewer, watching

PLACE = "ws://here"


class Echo(Agent):
    """Says what it hears."""

    @action
    def say(self, text: str) -> str:
        return text


class Parrot(ChatAgent):
    """Repeats.

    And has more to say about it.
    """

    def reply(self, turn: ChatTurn) -> str:
        return turn.text


class Inner(Parrot, private=True):
    """Talks to agents of its node alone."""


TREE = SupervisorSpec(
    "root",
    [
        ChildSpec("echo", Echo),
        SupervisorSpec("desk", [ChildSpec("parrot", Parrot)]),
        ChildSpec("private", Parrot),
        ChildSpec("inner", Inner),
        Pool(Echo, 2, name="many"),
    ],
)
USED = Security(
    schemes=SECURITY.schemes,
    access={
        "private": Access(
            inspect=("ann", "bob"), invoke=("ann",), read=("ann",), write=("ann",), subscribe=("ann",)
        ),
        "*": Access(
            inspect=("ann", "bob"),
            invoke=("ann", "bob"),
            read=("ann", "bob"),
            write=("ann",),
            subscribe=("ann",),
        ),
    },
)


@virtual
async def test_the_chat_agents_that_a_viewer_may_talk_to() -> None:
    network = MemoryNetwork()
    async with open_node(TREE, listen=PLACE, network=network, security=USED):
        for viewer, found in (("ann", ["desk/parrot", "private"]), ("bob", ["desk/parrot"])):
            async with watching(PLACE, network, as_viewer(viewer)) as watcher:
                watcher.look("chats")
                state = await watcher.until(
                    lambda: watcher.views.get("it", {}).get("complete") and watcher.views["it"]
                )
                assert state["order"] == found
                assert state["rows"]["desk/parrot"] == {
                    "class": "Parrot",
                    "status": "running",
                    "about": "Repeats.",
                }


@virtual
async def test_the_rights_of_a_viewer_over_an_agent() -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network, security=USED),
        watching(PLACE, network, as_viewer("bob")) as watcher,
    ):
        may = {"desk/parrot": ["read", "invoke"], "private": [], "many": ["read", "invoke"]}
        for path, rights in may.items():
            watcher.look("rights", path, path=path)
            await watcher.until(lambda path=path: path in watcher.views)
            state = watcher.views[path]
            there = {"name": path.replace("/", "."), "there": bool(rights), "may": rights, "operations": []}
            assert state == there
        for path in ("desk", "nobody"):
            watcher.look("rights", path, path=path)
            await watcher.until(lambda path=path: path in watcher.views)
            assert not watcher.views[path]["there"]
        watcher.look("rights", "wrong", path=3)
        await watcher.until(lambda: watcher.errors)
        assert watcher.errors[0]["code"] == "INVALID"
