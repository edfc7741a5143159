"""Execution of `serve FILE --group NAME`: one process of a group of a deployment.

The launcher starts this command, so a group can also be run by hand. All settings of the group in the file
are applied here: folder, environment, limits, and the options of its node.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
from msgspec import UNSET

from lmos_actors.deployment.agents import GroupAgents, enter_group, group_for
from lmos_actors.deployment.files import load_deployment, node_limits, with_limits
from lmos_actors.deployment.model import filled_for, texts_of
from lmos_actors.errors import BROKEN_CODE, ConfigError
from lmos_actors.files import did_you_mean
from lmos_actors.persistence import AsyncStore, server_store, store_of, with_id
from lmos_actors.security import SharedToken, is_private as is_private_place, place_of
from lmos_actors.system import relay_options
from lmos_actors.transport import TcpNetwork, endpoint_of

from .._exit_codes import USAGE
from .._importing import importing
from ..options._connection import options_in
from ..options._serving import (
    ChatOptions,
    DiscoveryOptions,
    ListenOptions,
    OfferOptions,
    SecurityOptions,
    ServeOptions,
)
from ._ending import Ending, ending_all
from ._serve import serve_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmos_actors.deployment.model import Deployment, Group
    from lmos_actors.node import Node
    from lmos_actors.persistence import Store

    from ..options._serving import GroupOptions

MOST_REPLICAS: Final = 1_000_000
"""Largest number of a process."""

NO_THREAD: Final = "can't start new thread"
"""Python's message if there is no memory for the stack of a thread."""

ELSEWHERE: Final = ("--listen", "--public-url", "--allow-operations")
"""Options that replace keys of the file: a process may have another address, or clients on its machine may do
more."""


def serve_group(words: Sequence[str], options: ServeOptions) -> int:
    """Serve until a signal arrives or the launcher has gone. Returns the exit code.

    Raises ConfigError, also for options that the file itself sets.
    """
    if len(words) != 1:
        raise ConfigError("goes with one deployment file, as in serve desk.yaml --group weather", "--group")
    for option, value in options_in(options.listening).items():
        if value and option not in ELSEWHERE:
            raise ConfigError("the file says this of a group: leave it out, or change the file", option)
    given = options.deployed
    settings, _ = given.settings, given.urls  # all are right before anything is done
    with ending_all() if given.launched else nullcontext():
        return _served(words[0], settings, given, options.listening)


def _served(file: str, settings: Mapping[str, str], given: GroupOptions, listening: ListenOptions) -> int:
    secret = SharedToken.handed()  # before anything of the project is imported
    if not 1 <= given.replica <= MOST_REPLICAS:
        raise ConfigError(f"must be a number from 1 to {MOST_REPLICAS}", "--replica")
    path = os.path.abspath(file)
    load = partial(load_deployment, path, settings=settings, snapshot=given.snapshot)
    first = importing(file, partial(load, classes=False))
    if isinstance(first, int):
        return first
    group = _group_of(first.deployment, file, given)
    enter_group(group, Path(path).parent, given.replica)  # before the modules of the agents are imported
    try:
        wrong: list[ConfigError] = []
        loaded = importing(file, partial(load, group=given.name), notice=wrong.append)
        if isinstance(loaded, int):
            is_broken = any(isinstance(each.__cause__, BROKEN_CODE) for each in wrong)
            return USAGE if is_broken else loaded
        agents = GroupAgents(loaded, given.name)
        ending = Ending(float(group.drain.timeout), float(group.drain.spread), launched=given.launched)
        store = _store_of(group, given)
        tells_early = bool(given.gateway or (given.launched and group.directory))
        start = partial(_start, agents, loaded.root if given.files else None, store, bound=tells_early)
        token = None if secret is None else _token(loaded.deployment, group, given, secret)
        options = _serve_options(loaded.deployment, group, given, listening)
        more = _node_options(loaded.deployment, group, given, token, options.discovery)
        limited = partial(with_limits, limits=node_limits(group))
        return serve_tree(options, agents.root, start, ending, limited, **more, store=store)
    except (MemoryError, RuntimeError) as error:
        memory = group.limits.memory
        if memory is UNSET or not (isinstance(error, MemoryError) or str(error) == NO_THREAD):
            raise
        why = f"{memory} is too little for this process: {str(error) or 'MemoryError'}; give it more"
        raise ConfigError(why, "limits.memory") from None


def _store_of(group: Group, given: GroupOptions) -> Store | AsyncStore | None:
    """Return the store of a group, not yet open. With `--store-id`, a store in a server must have that id.

    Raises ConfigError.
    """
    if group.store is None:
        return None
    text = group.store
    if given.store_id is not None:
        if server_store(text) is None:
            raise ConfigError("goes with a group that has a store in a server", "--store-id")
        text = with_id(text, given.store_id)
    return store_of(text)


async def _start(
    agents: GroupAgents, root: Path | None, store: Store | AsyncStore | None, node: Node, *, bound: bool
) -> None:
    """Start the agents, and wait until others can find them.

    With `root`, print which files of that project have been imported. With `bound`, print the addresses
    before any other program can know them. The identity of a server's store is printed before an agent can
    use the store to answer.
    """
    if isinstance(store, AsyncStore) and store.id:
        print(json.dumps({"event": "store", "id": store.id}), flush=True)
    if bound:
        print(json.dumps({"event": "bound", "urls": node.urls}), flush=True)
    await agents.start(node)
    if root is None:
        return
    files = {file for module in tuple(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    own = sorted(file for file in files if Path(file).is_relative_to(root) and "site-packages" not in file)
    print(json.dumps({"event": "files", "files": own}), flush=True)


def _group_of(deployment: Deployment, file: str, given: GroupOptions) -> Group:
    group = deployment.groups.get(given.name)
    if group is None:
        near = did_you_mean(given.name, list(deployment.groups))
        raise ConfigError(f'{file} has no group "{given.group}"{near}', "--group")
    return group_for(group, given.replica, given.keep)


def _token(deployment: Deployment, group: Group, given: GroupOptions, secret: bytes) -> SharedToken:
    """Return the token that the launcher shares, for use at the directories of other groups.

    A directory gets it over TLS or on this machine. Any other directory gets it only if its group sets
    `insecure`, and so accepts that tokens can be read in transit.
    """
    names = [text for text in texts_of(group.register) if text in deployment.groups and text != given.group]
    hosts = {_url_of(deployment, name, given): deployment.groups[name] for name in names}
    urls = [url for url, host in hosts.items() if host.insecure or is_private_place(place_of(url))]
    return SharedToken(secret, urls, insecure=True)


def _serve_options(
    deployment: Deployment, group: Group, given: GroupOptions, listening: ListenOptions
) -> ServeOptions:
    """Return the settings of the group in the form of options of `serve`."""
    security = SecurityOptions(
        cert=group.cert,
        key=group.key,
        client_ca=group.client_ca,
        security=group.security,
        origin=list(group.origins),
        insecure=group.insecure,
        allow_operations=group.allow_operations or listening.security.allow_operations,
    )
    others = [text for text in texts_of(group.register) if text != given.group]
    register = [_url_of(deployment, text, given) for text in others]
    lookup = [_url_of(deployment, text, given) for text in texts_of(group.lookup)]
    return ServeOptions(
        listening=ListenOptions(
            listen=_listen(group, given, listening),
            public_url=listening.public_url or (None if given.keep else group.public_url),
            security=security,
            metrics=group.metrics,
            tracing=group.tracing,
        ),
        discovery=DiscoveryOptions(register=register or None, lookup=lookup or None),
        chat=_chat(group),
        offer=OfferOptions(mcp=group.mcp),
    )


def _node_options(
    deployment: Deployment,
    group: Group,
    given: GroupOptions,
    token: SharedToken | None,
    discovery: DiscoveryOptions,
) -> dict[str, Any]:
    """Return the arguments of `open_node` that no option of `serve` sets. Raises ConfigError."""
    found: dict[str, Any] = {"circles": group.circles}
    if group.relay:
        found["relay"] = relay_options(None if group.relay is True else group.relay)
    if group.directory:
        from lmos_actors.directory import DirectoryOptions

        found["directory"] = attrs.evolve(DirectoryOptions.of(group.directory), takeover_token=token)
    ttl = _ttl(deployment, group)
    if given.group in texts_of(group.register):
        found["register"] = True  # in its own directory
    elif discovery.register and (ttl is not None or token is not None):
        from lmos_actors.discovery import TTL, Registration

        found["register"] = Registration(discovery.register, ttl=TTL if ttl is None else ttl, token=token)
    if given.gateway is not None:
        from lmos_actors.deployment.faults import GatewayNetwork  # few processes have one

        found["network"] = GatewayNetwork(endpoint_of(given.gateway), TcpNetwork())
    return found


def _listen(group: Group, given: GroupOptions, listening: ListenOptions) -> list[str]:
    """Return the URLs to listen at. A directory keeps its former port, at which others expect it."""
    urls = [_at_host(url, given.host) for url in listening.listen or texts_of(group.listen)]
    before = given.urls.get(given.name)
    if before is None:
        return urls
    port = endpoint_of(before).port
    first = endpoint_of(urls[0])
    return [attrs.evolve(first, port=port, target="").url, *urls[1:]]


def _at_host(url: str, host: str | None) -> str:
    """Return a URL in which the machine's address replaces `0.0.0.0` or `::`."""
    if host is None or endpoint_of(url).host not in ("0.0.0.0", "::"):
        return url
    return attrs.evolve(endpoint_of(url), host=host, target="").url


def _chat(group: Group) -> ChatOptions:
    if not group.omnia or group.omnia is True:
        return ChatOptions(omnia=bool(group.omnia))
    given = group.omnia
    return ChatOptions(
        omnia=not given.only,
        omnia_only=given.only,
        strict_sessions=given.strict_sessions,
        uploads=given.uploads,
    )


def _ttl(deployment: Deployment, group: Group) -> float | None:
    """Return the lifetime of registrations in seconds: short if a directory is only in memory, else None.

    After a restart, such a directory is empty until agents renew their registrations, which they do after
    about a third of that time.
    """
    hosts = [deployment.groups[name] for name in texts_of(group.register) if name in deployment.groups]
    return 30.0 if any(host.directory is True for host in hosts) else None


def _url_of(deployment: Deployment, text: str, given: GroupOptions) -> str:
    """Return the URL of a directory, given as a URL or as the group that hosts it. Raises ConfigError."""
    if "://" in text:
        return text
    if text in given.urls:
        return given.urls[text]
    host = deployment.groups[text]
    url = filled_for(host.public_url or texts_of(host.listen)[0], 1)
    endpoint = endpoint_of(url)
    if not endpoint.port:
        raise ConfigError(
            f'where is the group "{text}"? It listens at a free port: say it by --at {text}=http://HOST:PORT',
            "--at",
        )
    return f"{'https' if endpoint.secure else 'http'}://{endpoint.authority}"
