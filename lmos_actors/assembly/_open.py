"""`open_node`, the composition root: a node with its usual services.

A node nests stages, and the tasks of each are shielded until the stage inside it has ended:
services ⊃ connections ⊃ supervisors ⊃ the user's body. So the body ends first, then the children in reverse
start order, then the connections that carried their last answers, then the tasks that ran their turns.
See `node/_lifecycle.py`.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

import trio

from lmos_actors._core import for_async_with
from lmos_actors.node import Node, NodeLimits, open_stages

from ._options import NodeOptions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from os import PathLike
    from ssl import SSLContext

    from opentelemetry.trace import TracerProvider

    from lmos_actors._core import Instrument
    from lmos_actors.approvals import ApprovalOptions
    from lmos_actors.bindings import HttpOptions
    from lmos_actors.directory import DirectoryOptions
    from lmos_actors.discovery import Registration
    from lmos_actors.facades import OmniaOptions, RelayBridge, RelayOptions
    from lmos_actors.live import PageOptions
    from lmos_actors.mcp import McpOptions
    from lmos_actors.node import NodeService, NodeThread
    from lmos_actors.observe import MetricsOptions
    from lmos_actors.persistence import AsyncStore, Store
    from lmos_actors.protocol.lmos import SessionOptions
    from lmos_actors.security import Credentials, Security
    from lmos_actors.supervision import SupervisorSpec
    from lmos_actors.transport import ConnectionOptions, DoorOptions, Network


@for_async_with
@asynccontextmanager
@trio.lowlevel.enable_ki_protection
async def open_node(
    tree: SupervisorSpec | None = None,
    *,
    instrument: Instrument | None = None,
    threads: int | None = None,
    processes: int | None = None,
    limits: NodeLimits = NodeLimits(),  # noqa: B008 -- frozen
    listen: str | Sequence[str] | None = None,
    public_url: str | None = None,
    tls: SSLContext | None = None,
    client_tls: SSLContext | None = None,
    network: Network | None = None,
    session: SessionOptions | None = None,
    connection: ConnectionOptions | None = None,
    door: DoorOptions | None = None,
    http: HttpOptions | None = None,
    security: Security | None = None,
    origins: Sequence[str] = (),
    insecure: bool = False,
    credentials: Credentials | None = None,
    register: str | Sequence[str] | Registration | bool | None = None,
    lookup: str | Sequence[str] | None = None,
    directory: DirectoryOptions | str | PathLike[str] | bool | None = None,
    announce: bool | str = False,
    metrics: bool | MetricsOptions = False,
    tracing: bool | TracerProvider | None = None,
    store: Store | AsyncStore | str | None = None,
    circles: Literal["warn", "fail"] = "warn",
    strict_resume: bool = False,
    approvals: bool | ApprovalOptions = False,
    approval_seconds: float = 86_400.0,
    allow_operations: bool = False,
    page: bool | PageOptions | None = None,
    omnia: bool | OmniaOptions = False,
    mcp: bool | McpOptions = False,
    relay: bool | RelayOptions = False,
    bridges: Sequence[RelayBridge] = (),
    services: Sequence[Callable[[], NodeService]] = (),
) -> AsyncGenerator[Node]:
    """Open a node: a root supervisor with the children of `tree`, and the tasks that run their turns.

    At most `threads` threads (default 16) and `processes` worker processes (default: the number of
    processors) work for its agents at a time (`self.to_thread`, `self.to_process`). `limits` bounds the dead
    letters, crash reports and failures that the node keeps, and how long a turn may take.

    `listen` is the URL at which its agents are reached, such as `"ws://127.0.0.1:8080"`, or several URLs;
    port 0 takes a free port, see `node.urls`. A `wss` URL needs `tls`, a context with a certificate.
    `public_url` replaces these addresses in descriptions if a proxy is in front. `client_tls` is the TLS
    context of the node's own refs, by default the system's. `session`, `connection`, `door` and `http` set
    limits. `network` makes and takes connections. On virtual time its default is a network in memory that all
    nodes of the trio run share, otherwise the network of the operating system.

    `security` decides which clients are let in and what they may use; without it all clients are let in.
    Browser pages are let in only from the node's own origin and from `origins`. The node needs
    `insecure=True` for an address that others can reach without security, or where passwords would travel
    without TLS, except on a network in memory. The node's own refs present `credentials`, each only to the
    server it is meant for.

    `metrics` counts agents, requests and connections, for `/metrics` and `node.metrics()`. `tracing` records
    incoming and outgoing requests as OpenTelemetry spans, with the given provider, or with the global one if
    it is True.

    `register` is the URL of a directory, or several, at which the node's agents are registered while they
    exist, or a `Registration`; True means the node's own directory. `lookup` names directories in which its
    refs look for agents without registering. `directory` makes the node host a directory: it is the path of
    the directory's database, True for one in memory, or `DirectoryOptions`. `announce` announces the node on
    the local network by DNS-SD, under the given name, if any; it needs the extra `mdns`.

    `store` says where durable agents are kept: `"sqlite:PATH"`, a database that is made if there is none,
    `"redis://HOST"`, `"memory:"` for the life of the node, or a `Store` or an `AsyncStore`.

    `circles` decides what happens when a request of an agent closes a circle of requests that wait for each
    other without end. "warn" issues a DeadlockWarning, and on virtual time this block raises Deadlocked. With
    "fail" that request fails with WouldDeadlock.

    `strict_resume` is for tests: it refuses, with NotAllowed, each request in a turn of a chat agent that
    would act again if the turn is resumed. Without it a RepeatedCallWarning names the first such request.

    `approvals`, True or `ApprovalOptions`, starts the agent `approvals` with the node, not with an agent's
    first question (`self.approve`). Options that let clients decide do the same: on a node without security
    `allow_operations`, for clients on this machine; on other nodes the lists `approve` of its access lists.
    While an agent of another node asks a person, time limits of tools and turns here stand still, for at most
    `approval_seconds` in one request, if this node names the other node or has credentials for it.

    `page` decides whether the node serves its page, at `/`, or has its `PageOptions`. By default the page is
    served, unless `insecure` opens the node to other machines.

    `omnia` also serves its chat agents to clients of Omnia's chat protocol, at the addresses of `listen`:
    True, or `OmniaOptions`. `mcp` offers its agents to MCP clients there, at `/mcp`: True, or `McpOptions`;
    it needs the extra `mcp`. `relay` makes the node a hub of an AgentRelay there, at `/arc`: True, or
    `RelayOptions`. With `bridges` its agents are also on relays, of this node or of others, and answer there.
    `services` adds further services: each is a function that returns a `NodeService`, such as a class.

    Leaving the block stops the children in reverse start order, each within its `shutdown`. When the root
    supervisor gives up, the body is cancelled and `RestartIntensityExceeded` is raised. An exception of the
    body propagates unchanged. Ctrl-C stops in order; a second Ctrl-C stops everything at once.

    Raises StartFailed when a child of `tree` cannot start, ConfigError for an invalid argument and for an
    address at which it cannot listen.
    """
    options = locals().copy()  # the other arguments have the names of the fields, as a test checks
    async with open_stages(options.pop("tree"), NodeOptions(**options)) as stages:
        yield Node(stages)


def open_node_in_thread(tree: SupervisorSpec | None = None, options: NodeOptions | None = None) -> NodeThread:
    """Open a node in a new thread, and return when its tree has started.

    The block `with open_node_in_thread(tree) as portal:` stops the node in order at its end. Without a block,
    as in a notebook, use `node = open_node_in_thread(tree)`, `node.portal` and `node.close()`. Options and
    errors are the same as for `open_node`. Later errors of the node are raised by `close`, or at the end of
    the block.
    """
    from lmos_actors.node import open_in_thread

    return open_in_thread(tree, NodeOptions() if options is None else options)
