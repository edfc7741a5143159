"""The plan of a launcher from a deployment file."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from lmos_actors.errors import ConfigError
from lmos_actors.files import Duration
from lmos_actors.system import backoff_of

from ..model import DATABASE, Deployment, Group, LauncherPage, filled_for, needs_of, texts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.transport import Endpoint

    from ..processes import GroupPlan, LaunchPlan


def launch_plan(
    deployment: Deployment, file: str, words: tuple[str, ...] = (), *, operations: bool = False
) -> LaunchPlan:
    """Return the plan of a deployment; `words` are further arguments for the command of each process.

    With `operations`, processes of groups without authentication get `--allow-operations`, too.
    """
    from ..processes import LaunchPlan  # few files need it

    launcher = deployment.launcher
    plans: list[GroupPlan] = []
    for name, group in deployment.groups.items():
        # Its machine decides about operations, where the group does not set it in the file.
        is_for_others = any(each is not None for each in (group.security, group.client_ca, group.public_url))
        more = ("--allow-operations",) if operations and not is_for_others else ()
        plans.append(_group_plan(deployment, name, file, (*words, *more)))
    return LaunchPlan(
        name=deployment.name,
        file=file,
        groups=tuple(plans),
        strategy=launcher.strategy,
        max_restarts=launcher.max_restarts,
        max_seconds=float(launcher.max_seconds),
        page=repr(launcher.page),
    )


def _group_plan(deployment: Deployment, name: str, file: str, words: tuple[str, ...]) -> GroupPlan:
    from lmos_actors.persistence import server_store

    from ..processes import GroupPlan

    group = deployment.groups[name]
    return GroupPlan(
        name=name,
        replicas=group.replicas,
        arguments=("serve", file, "--group", name, *words),
        environment=group.env,
        needs={need: what for need, what in needs_of(group, deployment.groups).items() if need != name},
        hosts=tuple(host for host in _hosts_of(group) if host != name),
        tells_address=bool(group.directory) and _is_known_late(group),
        ready=float(group.ready),
        drain=float(group.drain.timeout + group.drain.spread),
        order=group.update.order,
        batch=group.update.batch,
        pause=float(group.update.pause),
        max_restarts=group.max_restarts,
        max_seconds=float(group.max_seconds),
        backoff=backoff_of(group.backoff),
        most=1 if is_alone(group) else 1_000,
        processors=None if group.limits.processors is UNSET else group.limits.processors,
        only_here=tuple(_only_here(group)),
        store=None if group.store is None else server_store(group.store),
        content=_digest(deployment, group),
    )


def _only_here(group: Group) -> Iterator[str]:
    """Yield a text for each thing that a group's process uses and that exists on one machine only."""
    from lmos_actors.security import is_loopback
    from lmos_actors.transport import endpoint_of

    for url in texts_of(group.listen):
        try:
            host = endpoint_of(filled_for(url, 1)).host
        except ConfigError:
            continue  # which is a mistake of its own
        if is_loopback(host):
            yield f'listens at "{url}", which no other machine reaches: listen at ws://0.0.0.0:0'
    if group.store is not None and group.store.startswith(DATABASE):
        yield f'keeps its state in a file of one machine, "{group.store}": use redis://HOST'
    if isinstance(group.directory, str) and "://" not in group.directory:
        yield f'keeps its directory in a file of one machine, "{group.directory}": use redis://HOST'


def _hosts_of(group: Group) -> tuple[str, ...]:
    """Return the groups whose directories a group uses."""
    used = (*texts_of(group.register), *texts_of(group.lookup))
    return tuple(dict.fromkeys(text for text in used if "://" not in text))


def _is_known_late(group: Group) -> bool:
    """Return whether the address of a process is known only once it listens.

    This applies to a free port, and to listening at all addresses without a `public_url`.
    """
    from lmos_actors.transport import endpoint_of

    endpoint = endpoint_of(filled_for(texts_of(group.listen)[0], 1))
    return not endpoint.port or (group.public_url is None and endpoint.host in ("0.0.0.0", "::"))


def is_alone(group: Group) -> bool:
    """Return whether a second process of a group would need a port or a file of the first."""
    return any(filled_for(text, 1) == filled_for(text, 2) for _, text in owned_by(group))


def endpoints_of(group: Group | LauncherPage) -> list[tuple[str, Endpoint]]:
    """Return the addresses at which a process listens, without invalid ones."""
    from lmos_actors.transport import endpoint_of

    found: list[tuple[str, Endpoint]] = []
    for url in texts_of(group.listen):
        with suppress(ConfigError):
            found.append((url, endpoint_of(filled_for(url, 1))))
    return found


def owned_by(group: Group) -> list[tuple[str, str]]:
    """Return the resources that only one process can have, as pairs of a key and its text.

    The texts still contain `$(replica)`.
    """
    from lmos_actors.persistence import has_one_writer

    found = [("listen", url) for url, endpoint in endpoints_of(group) if endpoint.port]
    if group.store is not None and has_one_writer(group.store):
        found.append(("store", group.store))
    if isinstance(group.directory, str):
        found.append(("directory", group.directory))
    return found


def _digest(deployment: Deployment, group: Group) -> str:
    """Return a digest of all that determines a process of a group, but not of the number of processes.

    The addresses of the directories that it uses are included: they are read when a process starts.
    """
    same = msgspec.structs.replace(group, replicas=1, max_restarts=0, max_seconds=Duration(1.0), needs={})
    agents, tree = deployment.agents, deployment.tree if group.agents else None
    if all(name in agents for name in group.agents):  # else parts of the tree are named: any may be in it
        agents = {name: agents[name] for name in group.agents}
    hosts = [deployment.groups[name] for name in _hosts_of(group)]
    addresses = [(host.listen, host.public_url) for host in hosts]
    return hashlib.sha256(repr((same, agents, tree, addresses)).encode()).hexdigest()[:16]
