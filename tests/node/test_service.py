"""Services of a node: the moments at which it asks each, and what it does with the answers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from lmos_actors import (
    Agent,
    ChildSpec,
    ConfigError,
    NodeOptions,
    NodeService,
    ServiceHome,
    action,
    open_node,
)
from lmos_actors.errors import ConnectFailed
from lmos_actors.live import LiveServer
from lmos_actors.security import ANYONE, Access, Bearer, Security
from lmos_actors.transport import Accept, Refuse, connect
from tests.networks import default_network
from tests.observe.http_requests import ask

if TYPE_CHECKING:
    from lmos_actors.actors import Runtime
    from lmos_actors.node import OwnAgents
    from lmos_actors.supervision import Supervisor
    from lmos_actors.transport import App, Connection, Upgrade


class Clerk(Agent):
    """An agent of a service."""

    @action
    def ping(self) -> str:
        return "pong"


class Noted(NodeService):
    """Notes what it is asked."""

    name = "noted"

    def __init__(self, notes: list[str], path: str = "/noted") -> None:
        self.notes, self.path = notes, path
        self.busy = ""

    def children(self) -> tuple[ChildSpec[Clerk]]:
        self.notes.append("children")
        return (ChildSpec(self.path.strip("/"), Clerk),)

    def begin(self, rt: Runtime, root: Supervisor) -> None:
        self.notes.append("begin")

    def open(self, home: ServiceHome) -> None:
        self.home = home
        self.notes.append(f"open {home.url}")

    def routes(self) -> list[Route]:
        async def answer(request: Any) -> PlainTextResponse:
            return PlainTextResponse(self.path)

        return [Route(f"{self.path}/web", answer)]

    def accept(self, upgrade: Upgrade) -> Accept | Refuse | None:
        return Accept(None, self.serve) if upgrade.path == self.path else None

    async def serve(self, connection: Connection) -> None:
        self.notes.append("served")

    def wrap(self, app: App) -> App:
        self.notes.append("wrap")
        return app

    def views(self) -> dict[str, Any]:
        return {"noted": lambda: {self.path: len(self.notes) > 0}}

    def why_not_ready(self) -> str:
        return self.busy

    async def run(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.notes.append("ended")

    def on_drain(self) -> None:
        if "drain" not in self.notes:
            self.notes.append("drain")

    async def wait_done(self) -> None:
        self.notes.append("done")


async def test_a_node_asks_a_service_at_fixed_moments(autojump_clock: Any) -> None:
    notes: list[str] = []
    async with open_node(listen="ws://here", services=[partial(Noted, notes)]) as node:
        assert notes == ["children", "begin", "open http://here", "wrap"]
        assert node.root.children[0].path == "noted"
        assert await node.find(Clerk, "noted").invoke(Clerk.ping) == "pong"
        await (await connect(default_network(), "ws://here/noted", subprotocols=())).aclose()
        assert (await ask(node, "/noted/web")).text == "/noted"
        notes.clear()
    assert notes == ["drain", "done", "ended"]


async def test_a_node_without_an_address_has_services_all_the_same(autojump_clock: Any) -> None:
    notes: list[str] = []
    async with open_node(services=[partial(Noted, notes)]) as node:
        assert await node.find(Clerk, "noted").invoke(Clerk.ping) == "pong"
    assert notes == ["children", "begin"]


async def test_a_service_says_why_a_node_is_not_ready(autojump_clock: Any) -> None:
    async with open_node(listen="ws://here", services=[partial(Noted, [])]) as node:
        service = node.service(Noted)
        assert service is not None
        service.busy = "recovering"
        answer = await ask(node, "/readyz")
        assert (answer.status, answer.text) == (503, "recovering\n")
        service.busy = ""
        assert (await ask(node, "/readyz")).text == "ready\n"


async def test_the_first_service_whose_address_it_is_has_a_websocket(autojump_clock: Any) -> None:
    one: list[str] = []
    two: list[str] = []
    services = [partial(Noted, one, "/one"), partial(Noted, two, "/two")]
    async with open_node(listen="ws://here", services=services) as node:
        await (await connect(default_network(), "ws://here/two", subprotocols=())).aclose()
        with pytest.raises(ConnectFailed):
            await connect(default_network(), "ws://here/three", subprotocols=())
        assert ("served" in one, "served" in two) == (False, True)
        assert node.service(Noted) is not None
        assert node.service(LiveServer) is not None


async def test_services_may_have_parts_of_one_view(autojump_clock: Any) -> None:
    services = [partial(Noted, ["x"], "/one"), partial(Noted, ["x"], "/two")]
    async with open_node(listen="ws://here", services=services) as node:
        service = node.service(Noted)
        assert service is not None
        views = service.home.views()
        assert views["noted"]() == {"/one": True, "/two": True}
        assert {"connections", "directories"} <= views.keys()


def test_options_name_the_usual_services() -> None:
    options = NodeOptions(listen="ws://127.0.0.1:0", relay=True, directory=True)
    made = [make() for make in attrs.evolve(options, page=True).all_services()]
    assert [each.name for each in made] == ["approvals", "page", "relay", "directory"]
    assert [make().name for make in NodeOptions().all_services()] == ["approvals"]
    assert options == NodeOptions(listen="ws://127.0.0.1:0", relay=True, directory=True)


@pytest.mark.parametrize("name", ["omnia", "mcp", "relay", "page"])
def test_a_service_that_is_reached_takes_an_address(name: str) -> None:
    given: dict[str, Any] = {name: True}
    with pytest.raises(ConfigError, match=f"{name}=.*goes with listen=") as caught:
        NodeOptions(**given)
    assert "which is not given" in str(caught.value)


class Archive(Noted):
    """Protects what its agent stores."""

    def own_agents(self) -> OwnAgents:
        return {"storage_agents": (self.path.strip("/"),)}


async def test_one_service_takes_the_protection_of_agents_from_no_other(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: Any
) -> None:
    monkeypatch.setenv("SERVICE_TEST_TOKEN", "x" * 32)
    names = ("one", "two", "three")
    access = dict.fromkeys(names, Access(invoke=ANYONE, read=("archivist",)))
    security = Security(schemes=(Bearer({"archivist": "env:SERVICE_TEST_TOKEN"}),), access=access)
    kinds = ((Archive, "/one"), (Archive, "/two"), (Noted, "/three"))
    services = [partial(kind, ["x"], path) for kind, path in kinds]
    async with open_node(listen="ws://here", services=services, security=security) as node:
        service = node.service(Archive)
        assert service is not None
        guard = service.home.guard
        assert [guard.admits(None, name, "invoke") for name in names] == [False, False, True]
