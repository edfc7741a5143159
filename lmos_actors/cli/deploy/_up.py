"""Execution of `up`: the launcher of a deployment file, in the foreground or detached."""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import sleep
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import attrs
import trio

from lmos_actors.assembly import NodeOptions
from lmos_actors.deployment.files import launch_plan, load_deployment
from lmos_actors.deployment.model import MOST_REPLICAS, LauncherPage
from lmos_actors.deployment.processes import (
    DESCRIPTORS_EACH,
    FEW_DESCRIPTORS,
    GROUP_MODULES,
    PRIVATE,
    AlreadyRunning,
    KnownStores,
    Launcher,
    LocalPlace,
    LogFiles,
    ProcessEnded,
    RayPlace,
    UnixNetwork,
    controls_of,
    in_order,
    open_launcher,
    reload_changed,
)
from lmos_actors.errors import (
    ActionFailed,
    ConfigError,
    StartFailed,
    SupervisionError,
    TransportError,
    group_of,
)
from lmos_actors.supervision import Backoff
from lmos_actors.transport import raise_descriptor_limit

from .._dispatch import dispatch
from .._exit_codes import COULD_NOT_RUN, FAILED, INTERRUPTED, OK
from .._importing import complain, importing, print_notes
from .._signals import signals
from ..options._connection import in_shell
from ..options._serving import SecurityOptions
from ..serve._serve import SAME_SIGNAL
from ._console import Console
from ._doctor import obstacles
from ._requests import apply, wait_ready

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.deployment.files import DeploymentFile
    from lmos_actors.deployment.processes import Controls, LaunchPlan, Place
    from lmos_actors.node import Node

    from ..options._deployment import UpOptions


def run_up(file: str, options: UpOptions) -> int:
    """Run the groups of a deployment until a signal or `down` stops them. Returns the exit code.

    Raises ConfigError.
    """
    settings = options.settings
    loaded = importing(file, partial(load_deployment, file, settings=settings))
    if isinstance(loaded, int):
        return loaded
    print_notes(loaded.notes)
    controls = controls_of(file, options.state)
    if controls.is_running():
        for option, is_given in options.at_start_alone.items():
            if is_given:
                raise ConfigError("goes with the start of a deployment: end this one by `down` first", option)
        return apply(controls, settings, dry_run=options.dry_run)
    try:
        controls.check_alone()
        page = _page_of(loaded, file, options)
        if options.dry_run:
            print("\n".join(_shown(launch_plan(loaded.deployment, controls.file))))
            return _say_obstacles(loaded, file)
        if options.detach:
            return _detached(options, controls)
        lock = controls.prepare()
    except AlreadyRunning as error:
        print(f"lmos-actors: {error}", file=sys.stderr)
        return COULD_NOT_RUN
    try:
        if options.new_stores:
            _forget(controls)
        read = partial(_read, controls, options)
        console = Console(json=options.json, quiet=options.quiet)
        place = _place_of(options, controls, loaded)
        plan = read(settings)
        running = _Up(plan, controls, console, read, place, page, reload=options.reload)
    except BaseException:
        controls.remove()
        lock.release()
        raise
    try:
        return _run(running)
    finally:
        controls.remove()  # its lock ends with this process, and so does the wait of `down`


def _say_obstacles(loaded: DeploymentFile, file: str) -> int:
    """Print the obstacles to a start on this machine. Returns the exit code."""
    found = obstacles(loaded, file)
    for each in found:
        kind = "note: " if each.verdict == "warn" else ""
        print(f"lmos-actors: {kind}{each.name}: {each.saw}; {each.remedy}", file=sys.stderr)
    return FAILED if any(each.verdict == "fail" for each in found) else OK


def _page_of(loaded: DeploymentFile, file: str, options: UpOptions) -> NodeOptions | None:
    """Return the options of the launcher's page, its address and its protection; None without a page.

    Raises ConfigError.
    """
    said = loaded.deployment.launcher.page
    if options.no_page or said is False:
        if options.allow_operations:
            raise ConfigError("is for people at its page, and it has none", "--allow-operations")
        return None
    page = LauncherPage() if said is True else said
    if options.allow_operations and not page.allow_operations:
        if page.security is not None or page.client_ca is not None:
            raise ConfigError(
                'the lists "operate" of the security file of its page say who may', "--allow-operations"
            )
        if page.public_url is not None:
            raise ConfigError(
                'is for people on this machine, and behind "public_url" a proxy is for others',
                "--allow-operations",
            )
    folder = Path(file).resolve().parent
    cert, key, client_ca, security = (
        None if each is None else str(folder / each)
        for each in (page.cert, page.key, page.client_ca, page.security)
    )
    guarded = SecurityOptions(
        cert=cert,
        key=key,
        client_ca=client_ca,
        security=security,
        insecure=page.insecure,
        allow_operations=page.allow_operations or options.allow_operations,
    )
    where: dict[str, Any] = {"listen": page.listen, "public_url": page.public_url, "page": True}
    try:
        return NodeOptions(**{**guarded.options([page.listen]), **where})
    except ConfigError as error:
        raise ConfigError(in_shell(error.message), "launcher.page") from None


def _forget(controls: Controls) -> None:
    """Delete the record of the stores in servers that were used. Raises ConfigError."""
    try:
        controls.stores.unlink(missing_ok=True)
    except OSError as error:
        raise controls.unwritable(error) from None


def _place_of(options: UpOptions, controls: Controls, loaded: DeploymentFile) -> Place:
    """Return where the processes run. Raises ConfigError."""
    if options.on is None:
        return LocalPlace(controls.records, GROUP_MODULES)
    if options.on != "ray" and not options.on.startswith("ray://"):
        raise ConfigError(f'"{options.on}" is no place: write ray, or ray://HOST:10001', "--on")
    address = "auto" if options.on == "ray" else options.on
    return RayPlace(address, loaded.root, Path(controls.file), loaded.deployment.name, command=dispatch)


def _read(controls: Controls, options: UpOptions, settings: Mapping[str, str]) -> LaunchPlan:
    """Return the plan of the file as it is now, and copy the file for the processes. Raises ConfigError.

    With `reload`, processes list their imports, and are started again after any number of failures, as code
    may be unfinished. With `allow_operations`, processes of groups without `security` also allow operations
    by clients on their machine.
    """
    operations = options.allow_operations and options.on is None
    file = Path(controls.file)
    content = file.read_bytes()
    copy = controls.copies / f"{hashlib.sha256(content).hexdigest()[:8]}{file.suffix}"
    try:
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(content)
    except OSError as error:
        raise controls.unwritable(error) from None
    loaded = load_deployment(controls.file, settings=settings, classes=False, snapshot=copy)
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    words += ["--files"] if options.reload else []
    words = ["--snapshot", str(copy), *words]
    plan = launch_plan(loaded.deployment, controls.file, tuple(words), operations=operations)
    if not options.reload:
        return plan
    slowly = Backoff(initial=0.5, max=2.0)
    # While code is being written, a group may fail any number of times.
    patient: dict[str, Any] = {"max_restarts": 1_000_000, "backoff": slowly, "is_patient": True}
    return attrs.evolve(plan, groups=tuple(attrs.evolve(group, **patient) for group in plan.groups))


def _shown(plan: LaunchPlan) -> list[str]:
    """Return a description of what would be started: one line for each group, in order."""
    lines = [f"{plan.name}: {len(plan.groups)} groups, in this order"]
    for group in in_order(plan.groups):
        needs = ", ".join(f"{name} {what}" for name, what in group.needs.items())
        count = f"{group.replicas} process" + ("es" if group.replicas != 1 else "")
        lines.append(f"  {group.name}: {count}{f', once {needs}' if needs else ''}")
    return lines


# ---- in the foreground


def _of_agents(record: logging.LogRecord) -> bool:
    """Return whether a log record is shown: the crash reports of processes are left out.

    The end of a process has its own line. The count of left-out reports is not shown either, since most of
    those are about processes in a crash loop.
    """
    args = record.args if isinstance(record.args, tuple) else ()
    return not any(
        isinstance(each, int) or isinstance(getattr(each, "error", None), (ProcessEnded, StartFailed))
        for each in args
    )


def _run(running: _Up) -> int:
    raise_descriptor_limit(FEW_DESCRIPTORS + DESCRIPTORS_EACH * MOST_REPLICAS)
    logging.getLogger("lmos_actors").addFilter(_of_agents)
    try:
        trio.run(running.run)
    except ConfigError as error:
        return complain(error)
    except (SupervisionError, TransportError, StartFailed) as error:
        running.console.failed(_why(error))
        return COULD_NOT_RUN
    return INTERRUPTED if running.signals > 1 else OK


def _why(error: BaseException) -> str:
    """Return what ended the launcher: how the last processes ended, and which groups failed too often."""
    found, cause = [str(error)], error.__cause__
    while cause is not None:
        group = group_of(cause)
        causes = [cause] if group is None else list(group.exceptions)
        found = [*map(str, causes), *found]
        cause = causes[-1].__cause__ if causes else None
    if len(found) > 1:
        del found[-1]  # that of the root, which no file knows
    return "\n  ".join(dict.fromkeys(found))


class _Up:
    """One run of `up`."""

    def __init__(
        self,
        plan: LaunchPlan,
        controls: Controls,
        console: Console,
        read: Callable[[Mapping[str, str]], LaunchPlan],
        place: Place,
        page: NodeOptions | None,
        *,
        reload: bool,
    ) -> None:
        self.signals = 0
        self._plan = plan
        self._controls = controls
        self.console = console
        self._logs = LogFiles(controls.logs, console.warned)
        self._place = place
        self._page = page
        self._launcher = Launcher(
            plan,
            self._place,
            self._logs,
            console.changed,
            read,
            token=controls.token(),
            stores=KnownStores(controls.stores, console.warned),
            say=console.said,
        )
        self._node: Node | None = None
        self._reload = reload
        self._asked: dict[int, float] = {}  # the instant of the last signal of each number

    async def run(self) -> None:
        """Run until a signal or `down` stops the deployment. Raises RestartIntensityExceeded, ConfigError."""
        failure: BaseException | None = None
        async with trio.open_nursery() as nursery:
            await nursery.start(self._take_signals)
            with self._logs.follow(patience=1.0) as follower:
                async with trio.open_nursery() as showing:
                    showing.start_soon(self.console.show, follower)
                    try:
                        async with self._place.opened():
                            await self._live()
                    except BaseException as error:  # noqa: ASYNC103 -- raised below, not as a group of one
                        failure = error
                    self._logs.close()
            nursery.cancel_scope.cancel("the launcher has ended")
        if failure is not None:
            raise failure
        if self.signals > 1:
            self.console.cut_short()
        else:
            self.console.stopped()

    async def _live(self) -> None:
        self._place.check(self._plan)
        left = await self._place.left()
        if left:
            self.console.waits_for(left)
            await self._wait_left()
        if self._launcher.ending.is_set():
            return
        network, noted = UnixNetwork(self._controls.socket), self.console.operated
        async with open_launcher(self._launcher, network, self._page, noted) as node:
            self._node = node
            if self._launcher.page:
                self.console.page(self._launcher.page)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._say_ready)
                if self._reload:
                    nursery.start_soon(reload_changed, self._launcher, self.console.said)
                await self._launcher.ending.wait()
                nursery.cancel_scope.cancel("the launcher ends")
            self.console.draining()

    async def _wait_left(self) -> None:
        """Wait until the processes of an earlier launcher have ended, or this launcher is to end."""
        async with trio.open_nursery() as nursery:

            async def until_asked() -> None:
                await self._launcher.ending.wait()
                nursery.cancel_scope.cancel("the launcher ends")

            nursery.start_soon(until_asked)
            await self._place.wait_left(max((group.shutdown for group in self._plan.groups), default=0.0))
            nursery.cancel_scope.cancel("they have ended")

    async def _say_ready(self) -> None:
        with suppress(ActionFailed):  # it ends before
            await self._launcher.wait_ready()
            if not self._launcher.has_failed():
                self.console.ready(self._launcher.status())

    async def _take_signals(self, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as coming:
            task_status.started()
            async for number in coming:
                at, before = trio.current_time(), self._asked.get(number, -inf)
                self._asked[number] = at
                if at - before < SAME_SIGNAL:  # `timeout` sends it to the process, and to its group
                    continue
                self.signals += 1
                if self.signals == 1:
                    self._launcher.end()
                elif self.signals == 2 and self._node is not None:
                    self._node.force_stop()
                else:  # a terminal that stands still: the processes end by themselves
                    os._exit(INTERRUPTED)


# ---- detached


def _detached(options: UpOptions, controls: Controls) -> int:
    """Start the launcher in the background and wait until its groups are ready; Ctrl-C terminates it."""
    said = controls.folder / "launcher.log"
    try:
        controls.folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        log = _log_of_its_own(said)
    except OSError as error:
        raise controls.unwritable(error) from None
    with log, signals.in_order():
        process = _in_background(options, controls, log)
        try:
            while not (controls.socket.exists() and controls.is_running()):
                if process.poll() is not None:
                    return _ended(process.returncode, log, controls)
                sleep(0.05)
            code = wait_ready(controls, process, json=options.json)
            if code is None:
                return _ended(process.wait(), log, controls)
            process.returncode = code  # it goes on without us: else Python warns that it still runs
            return code
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise


def _log_of_its_own(path: Path) -> BinaryIO:
    """Open a new log file and rename it to a path. Raises OSError.

    If two launchers start at the same instant, each writes to its own file; in one file they would overwrite
    each other.
    """
    log = cast("BinaryIO", NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False))  # noqa: SIM115
    try:
        log.write(b"\n")  # on a full disk the launcher could not say why it ends
        log.flush()
        log.truncate(0)
        log.seek(0)
        os.replace(log.name, path)
    except BaseException:
        log.close()
        Path(log.name).unlink(missing_ok=True)
        raise
    return log


def _in_background(options: UpOptions, controls: Controls, log: BinaryIO) -> subprocess.Popen[bytes]:
    words = ["up", controls.file, "--json", "--quiet"]  # what it prints goes to a file that has no bounds
    words += ["--reload"] if options.reload else []
    words += [option for option, is_given in options.at_start_alone.items() if is_given]
    words += ["--on", options.on] if options.on is not None else []
    words += [word for key, value in options.settings.items() for word in ("--set", f"{key}={value}")]
    words += ["--state", str(controls.folder)] if options.state is not None else []
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "lmos_actors", *words],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _ended(code: int, log: BinaryIO, controls: Controls) -> int:
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").splitlines()
    reasons = [line for line in lines if not line.startswith('{"event"')] or lines
    if code == OK and controls.is_running():  # another one was first, and has taken over the file as it is
        print("\n".join(reasons))
        return OK
    silent = (
        f"lmos-actors: the launcher ended with exit code {code} and could not say why: leave out --detach"
    )
    print("\n".join(reasons[-20:]) or silent, file=sys.stderr)
    return code or COULD_NOT_RUN
