"""A client for the official conformance suite: its `--command` is `python -m tests.mcp.suite_client`.

The suite adds the URL of its server, and has the name of the scenario in the environment.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from typing import Any, Final

import httpx2
import trio

from lmos_actors import AgentError, ChildSpec, Node, Ref, open_node
from lmos_actors.errors import StartFailed
from lmos_actors.mcp import McpOAuth, McpServer
from lmos_actors.testing import answer_approval

DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"
"""The id of a client that has a metadata document; the suite takes no other."""

SECONDS: Final = 60.0


async def open_url(url: str) -> None:
    """Be the person, and the browser: the suite lets everybody in."""
    async with httpx2.AsyncClient() as browser:
        back = (await browser.get(url)).headers["location"]
        await browser.get(back)


async def issuer_of(url: str) -> str:
    """Return the authorization server that a server names."""
    place = httpx2.URL(url).join("/.well-known/oauth-protected-resource/mcp")
    async with httpx2.AsyncClient() as client:
        return (await client.get(place)).json()["authorization_servers"][0]


async def options_for(scenario: str, url: str) -> dict[str, Any]:
    """Return the options of the server of a scenario."""
    if not scenario.startswith("auth/"):
        return {}
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    os.environ["SUITE_SECRET"] = context.get("client_secret") or context.get("private_key_pem") or ""
    known: dict[str, Any] = {}
    if "client_id" in context:
        known = {"client_id": context["client_id"], "issuer": await issuer_of(url)}
    match scenario.removeprefix("auth/"):
        case "client-credentials-jwt":
            algorithm = context.get("signing_algorithm", "ES256")
            oauth = McpOAuth(**known, private_key="env:SUITE_SECRET", algorithm=algorithm)
        case "client-credentials-basic":
            oauth = McpOAuth(**known, client_secret="env:SUITE_SECRET")
        case "pre-registration":
            oauth = McpOAuth(**known, client_secret="env:SUITE_SECRET", ask=open_url)
        case _:
            oauth = McpOAuth(client_id=DOCUMENT, ask=open_url)
    return {"oauth": oauth}


async def use(server: Ref[McpServer]) -> None:
    """Call each tool once, with numbers and texts where its schema wants some."""
    async with server.observe(McpServer.info) as infos:
        async for info in infos:
            if info.protocol:
                break
    samples = {"number": 2, "integer": 2, "string": "two", "boolean": True}
    for tool in await server.read(McpServer.tools):
        fields = json.loads(tool.input_schema).get("properties", {})
        given = {name: samples.get(each.get("type")) for name, each in fields.items()}
        await server.invoke(McpServer.call, tool.name, given)


async def accept(node: Node) -> None:
    """Be the person who fills in each form with nothing."""
    while True:
        await answer_approval(node, True)


async def main(url: str) -> str | None:
    """Return why it has failed; None if it has not."""
    failure: str | None = None
    options = await options_for(os.environ["MCP_CONFORMANCE_SCENARIO"], url)
    with trio.fail_after(SECONDS):
        async with open_node(approvals=True) as node, trio.open_nursery() as nursery:
            nursery.start_soon(accept, node)
            try:
                factory = partial(McpServer, url=url, elicitation="approve", **options)
                await use(await node.start_child(ChildSpec("server", factory, restart="temporary")))
            except (AgentError, StartFailed) as error:
                failure = "\n".join(map(str, (error, *node.crash_reports)))
            nursery.cancel_scope.cancel()
    return failure


if __name__ == "__main__":
    sys.exit(trio.run(main, sys.argv[1]))
