"""Execution of `status`, `logs`, `restart`, `scale`, `drain` and `down`: requests to a running launcher.

The launcher is an agent, and these are its consumers, over a socket of this machine.
"""

from __future__ import annotations

import math
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from lmos_actors._core import printable
from lmos_actors.assembly import open_node
from lmos_actors.deployment.processes import (
    LauncherAgent,
    LocalPlace,
    UnixNetwork,
    controls_of,
    launcher_url,
    running_controls,
)
from lmos_actors.errors import ActionFailed, AgentError, ConfigError, TransportError

from .._app import json_text
from .._exit_codes import FAILED, NOT_REACHED, OK
from .._loop import run_loop
from .._signals import signals

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping

    from lmos_actors.actors import Ref
    from lmos_actors.deployment.processes import Controls, LauncherStatus
    from lmos_actors.node import Node

LOOK: Final = 0.05
"""Seconds between two checks of a process that is ending or starting."""

MOST_LATE: Final = 3
"""Maximum late processes that are named."""

GOES_ON: Final = "lmos-actors: the launcher finishes its step, and begins no other; see `status`"
"""The message when the user no longer waits for the launcher's work."""

CONNECT: Final = 10.0
"""Seconds for a running launcher to answer."""


def controls_for(file: str | None, state: str | None, groups: Iterable[str] = ()) -> Controls:
    """Return the controls of a file's deployment or, without a file, of the only running deployment.

    Raises ConfigError, also if one of the groups looks like the name of a file.
    """
    for name in groups:
        if "." in name or "/" in name:
            raise ConfigError(f'"{name}" is no group; a file is named by --file {name}, or alone', "GROUP")
    if file is not None:
        named = controls_of(file, state)
        return named if state is not None else named.running() or named
    running = running_controls()
    if len(running) == 1:
        return running[0]
    if not running:
        raise ConfigError("nothing runs: name a deployment file, and `up` runs it", "FILE")
    known = ", ".join(each.file for each in running)
    raise ConfigError(f"several deployments run, name one of them: {known}", "FILE")


def asked(controls: Controls, use: Callable[[Ref[LauncherAgent]], Awaitable[int]]) -> int:
    """Make a request to a launcher, and print the outcome. Returns the exit code."""
    if not controls.is_running():
        print(f"lmos-actors: {controls.file} does not run: `up` runs it", file=sys.stderr)
        return NOT_REACHED

    async def main() -> int:
        async with _launcher(controls) as ref:
            return await use(ref)

    try:
        return run_loop(main)
    except ActionFailed as error:
        print(f"lmos-actors: {error.output}", file=sys.stderr)
        return FAILED
    except trio.TooSlowError:
        print(
            f"lmos-actors: the launcher of {controls.file}, {controls.owner()}, does not answer within"
            f" {CONNECT:g} s: it waits for processes of an earlier one, or is stopped (`kill -CONT` lets"
            " it go on); after `kill -9` its processes end by themselves, and `up` runs them anew",
            file=sys.stderr,
        )
        return NOT_REACHED
    except (AgentError, TransportError) as error:
        print(f"lmos-actors: the launcher of {controls.file}: {error}", file=sys.stderr)
        return NOT_REACHED


@asynccontextmanager
async def _launcher(controls: Controls) -> AsyncGenerator[Ref[LauncherAgent]]:
    async with open_node(network=UnixNetwork(controls.socket)) as node:
        with trio.fail_after(CONNECT):
            ref = await _reached(node, controls)
        yield ref


async def _reached(node: Node, controls: Controls) -> Ref[LauncherAgent]:
    while True:
        try:
            return await node.consume(LauncherAgent, launcher_url())
        except TransportError:
            if not controls.is_running():
                raise
            await trio.sleep(LOOK)  # it starts: its socket is there some time after its lock


# ---- status


def show_status(file: str | None, state: str | None, *, json: bool) -> int:
    """Print the state of one deployment, or of all that run. Returns the exit code."""
    if file is None and len(running_controls()) != 1:
        running = running_controls()
        if json:
            print(json_text([{"file": each.file} for each in running]))
        else:
            print("\n".join(each.file for each in running) or "nothing runs")
        return OK if running else NOT_REACHED

    async def use(ref: Ref[LauncherAgent]) -> int:
        print_status(await ref.invoke(LauncherAgent.status), json=json)
        return OK

    return asked(controls_for(file, state), use)


def print_status(status: LauncherStatus, *, json: bool) -> None:
    """Print the state of a deployment, as a table or as JSON."""
    if json:
        groups = {
            group.name: {
                "wanted": group.wanted,
                "replicas": [msgspec.to_builtins(replica) for replica in group.replicas],
                "rollout": msgspec.to_builtins(group.rollout),
            }
            for group in status.groups
        }
        head: dict[str, Any] = msgspec.to_builtins(status)
        print(json_text({**head, "groups": groups}))
        return
    steps = (f": {group.rollout}" for group in status.groups if group.rollout is not None)
    doing = f", {status.doing}{next(steps, '')}" if status.doing else ""
    print(f"{status.name}: launcher {status.launcher_pid}, since {status.since}{doing}")
    if status.page:
        print(f"page: {status.page}")
    rows = [("PROCESS", "STATE", "PID", "STARTS", "RESTARTS", "SINCE", "")]
    for group in status.groups:
        if not group.replicas:
            rows.append((group.name, "none wanted", "", "", "", "", ""))
        for replica in group.replicas:
            more = " ".join(replica.urls) or (f"it {replica.why}" if replica.why else "")
            pid = "" if replica.pid is None else str(replica.pid)
            counts = (str(replica.generation), str(replica.restarts))
            state = "degraded" if replica.degraded else replica.state
            more += f"  down: {', '.join(replica.degraded)}" if replica.degraded else ""
            rows.append((f"{group.name}/{replica.number}", state, pid, *counts, replica.since, more))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        print(printable("  ".join(cells).rstrip()))
    if status.lines_lost:
        print(printable(f"{status.lines_lost} lines of processes are in no log: {status.why_lost}"))


def wait_ready(controls: Controls, process: subprocess.Popen[bytes], *, json: bool) -> int | None:
    """Wait for a launcher in the background, print its state, and return the exit code of the start.

    Returns None if the launcher ends before it is ready. Raises KeyboardInterrupt.
    """

    async def main() -> int | None:
        result: int | None = None
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                while process.poll() is None:  # noqa: ASYNC110 -- nothing says that it ends
                    await trio.sleep(LOOK)
                nursery.cancel_scope.cancel("the launcher has ended")

            nursery.start_soon(watch)
            while result is None:
                try:
                    async with _launcher(controls) as ref:
                        if sys.stderr.isatty():
                            nursery.start_soon(_say_late, ref)
                        status = await ref.invoke(LauncherAgent.ready)
                    print_status(status, json=json)
                    result = _code_of(status)
                except (
                    AgentError,
                    TransportError,
                    trio.TooSlowError,
                ):  # it starts, or ends
                    await trio.sleep(LOOK)
            nursery.cancel_scope.cancel("it is ready")
        return result

    return run_loop(main)


def _code_of(status: LauncherStatus) -> int:
    """Return the exit code of a start; print which processes cannot start."""
    failed = [(group.name, each) for group in status.groups for each in group.replicas]
    failed = [(name, each) for name, each in failed if each.state == "failed"]
    for name, each in failed:
        text = f"{name}/{each.number} {each.why}"
        print(printable(f"lmos-actors: {text}; correct it, and `up` again starts it"), file=sys.stderr)
    return FAILED if failed else OK


async def _say_late(ref: Ref[LauncherAgent]) -> None:
    """Print which processes are not ready, at each change, until cancelled."""
    said = ""
    with suppress(AgentError, TransportError):  # it ends
        while True:
            await trio.sleep(1.0)
            late = _late_in(await ref.invoke(LauncherAgent.status))
            if late and late != said:
                print(printable(f"not ready yet: {late}"), file=sys.stderr, flush=True)
            said = late


def _late_in(status: LauncherStatus) -> str:
    """Return the first processes that are not ready, and how many more there are."""
    replicas = [(group.name, each) for group in status.groups for each in group.replicas]
    late = [
        f"{group}/{each.number} {each.state}{f' (it {each.why})' if each.why else ''}"
        for group, each in replicas
        if each.state != "ready"
    ]
    return ", ".join(late[:MOST_LATE]) + (f" and {len(late) - MOST_LATE} more" if late[MOST_LATE:] else "")


def addresses_of(controls: Controls) -> dict[str, str] | int:
    """Return the addresses of a deployment's processes by name, or the exit code if it does not run."""
    found: dict[str, str] = {}

    async def use(ref: Ref[LauncherAgent]) -> int:
        status = await ref.invoke(LauncherAgent.status)
        for group in status.groups:
            for each in group.replicas:
                if each.urls:
                    found[f"{group.name}/{each.number}"] = each.urls[0]
        return OK

    code = asked(controls, use)
    return found if code == OK else code


# ---- requests that take a while


async def _printed(texts: Any, instead: str = "") -> int:
    try:
        async with texts as steps:
            async for text in steps:
                instead = ""
                print(printable(text), flush=True)
    except (KeyboardInterrupt, trio.Cancelled):
        print(GOES_ON, file=sys.stderr, flush=True)
        raise
    if instead:
        print(instead)
    return OK


def restart(controls: Controls, groups: list[str], *, rolling: bool) -> int:
    """Restart groups. Returns the exit code."""
    return asked(controls, lambda ref: _printed(ref.stream(LauncherAgent.restart, groups, rolling)))


def apply(controls: Controls, settings: Mapping[str, str], *, dry_run: bool) -> int:
    """Apply the file in its present state to the launcher that runs it. Returns the exit code."""

    async def use(ref: Ref[LauncherAgent]) -> int:
        as_it_is = f"{controls.file} runs as it is"
        if not dry_run:
            return await _printed(ref.stream(LauncherAgent.apply, dict(settings)), as_it_is)
        lines = await ref.invoke(LauncherAgent.changes, dict(settings))
        print("\n".join(map(printable, lines)) or as_it_is)
        return OK

    return asked(controls, use)


def scale(controls: Controls, counts: dict[str, int]) -> int:
    """Bring groups to the requested numbers of processes. Returns the exit code."""

    async def use(ref: Ref[LauncherAgent]) -> int:
        for group, count in counts.items():
            await _printed(ref.stream(LauncherAgent.scale, group, count), f"{group}: {count} as before")
        return OK

    return asked(controls, use)


def drain(controls: Controls, groups: list[str]) -> int:
    """Stop the processes of groups in order. Returns the exit code."""

    async def use(ref: Ref[LauncherAgent]) -> int:
        for group in groups:
            await _printed(ref.stream(LauncherAgent.drain, group))
        return OK

    return asked(controls, use)


def show_logs(controls: Controls, groups: list[str], *, last: int, follow: bool) -> int:
    """Print the output of groups. Returns the exit code."""
    if not controls.is_running() and controls.logs.is_dir():
        print(
            f"lmos-actors: {controls.file} does not run; what its processes printed is in {controls.logs}",
            file=sys.stderr,
        )
        return NOT_REACHED

    async def use(ref: Ref[LauncherAgent]) -> int:
        async with ref.stream(LauncherAgent.logs, groups, last, follow) as lines:
            async for line in lines:
                if line.left_out:
                    print(f"{line.process:16} | … {line.left_out} lines left out")
                print(f"{line.process:16} | {line.time} {printable(line.text)}", flush=True)
        return OK

    return asked(controls, use)


def down(file: str | None, state: str | None) -> int:
    """End a deployment in order, and wait until all of it has ended. Returns the exit code."""
    if file is None and not running_controls():
        print("nothing runs")
        return OK
    controls = controls_for(file, state)
    if not controls.is_running():
        return _ended(controls, " does not run")

    async def use(ref: Ref[LauncherAgent]) -> int:
        await ref.invoke(LauncherAgent.down)
        return OK

    code = asked(controls, use)
    if code != OK:
        return code

    with signals.in_order():
        trio.run(_gone, controls)
    return _ended(controls, ": stopped")


async def _gone(controls: Controls) -> None:
    """Wait until a launcher has ended; print a notice if that takes a while."""
    waits = trio.current_time() + CONNECT
    while controls.is_running():
        await trio.sleep(LOOK)
        if trio.current_time() >= waits:
            waits = math.inf
            print(f"{controls.file}: its processes drain; `status` shows them", file=sys.stderr, flush=True)


def _ended(controls: Controls, what: str) -> int:
    """Print that no launcher runs, and which of its processes still run. Return the exit code."""
    left = trio.run(LocalPlace(controls.records).left)
    if not left:
        print(f"{controls.file}{what}")
        return OK
    pids = ", ".join(map(str, left))
    print(
        f"lmos-actors: {controls.file}: its launcher has ended, and processes go on until they have drained:"
        f" {pids}",
        file=sys.stderr,
    )
    return FAILED
