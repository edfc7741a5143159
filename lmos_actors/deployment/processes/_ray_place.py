"""A Ray cluster as the place of processes: Ray chooses the machine, and reports when one is gone.

    launcher (a driver of Ray)          a machine of the cluster
      RayPlace ── RayProcess ─────────── RayReplica (_ray_worker.py), an actor in a separate worker
                  begin, read,             a thread: `serve --group`
                  wait, stop                 separate connections to other groups

Messages between agents do not pass through Ray. It only carries the requests to begin and to end, and the
lines that a process prints. Ray restarts nothing, either: a process whose worker or machine is gone has
ended, and its supervisor starts another by its restart rules, which Ray then places.

- **One launcher for a deployment.** The actors are in a namespace named after the deployment. A further
  actor, `launcher`, ends with the launcher's job; while it exists, a second launcher is refused.
- **Processes of an earlier launcher** drain once no launcher reads their lines. A new launcher waits for
  their end.
- **The project is sent along**: its folder is the working directory of each worker (`runtime_env`). The copy
  of the deployment file that a process reads is sent with its order.
- **The event loop never waits for Ray.** Blocking calls are made in a thread; answers arrive as futures.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import trio

from lmos_actors.errors import ConfigError, StartFailed

from ._control import AlreadyRunning
from ._ray_worker import SHIPPED, RayReplica, version

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from ._place import Order
    from ._plan import LaunchPlan

LAUNCHER: Final = "launcher"
"""Name of the actor that ends with the launcher."""

REACHED: Final = 5.0
"""Seconds for a first connection to the cluster."""

CLIENT_NOT_STARTED: Final = "Starting Ray client server failed"
"""What Ray answers to `ray://` where the process that it has forked for this client has ended at once.

Ray 2.60 forks it while threads of gRPC work, after which the process now and then ends by a bad descriptor.
"""

CLIENT_STARTS: Final = 3
"""How often a client is started before that answer is final."""

LEFT_OUT: Final = [".git", ".venv", "__pycache__", ".lmos", "*.db", "*.db-*", "*.log"]
"""Files of the project that do not travel."""


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        return import_module("ray")
    except ImportError:
        raise ConfigError(
            "a place on Ray needs the extra ray: pip install 'lmos-actors[ray]'", "--on"
        ) from None


async def _answer(ref: Any) -> Any:
    """Wait for the answer of an actor, or raise what Ray reports. Cancellation does not stop the call."""
    token, done = trio.lowlevel.current_trio_token(), trio.Event()

    def wake(_: object) -> None:
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(done.set)

    future = ref.future()
    future.add_done_callback(wake)
    await done.wait()
    return future.result()


class RayProcess:
    """A process in the worker of a Ray actor."""

    def __init__(self, ray: Any, actor: Any, id: str, aside: Callable[[Callable[[], None]], None]) -> None:
        self.id = id
        self._aside = aside
        self._ray = ray
        self._actor = actor
        self._has_ended = False
        self._open = 3
        """The number of things still unknown: streams not read to their end, and the exit code."""

    def output(self) -> AsyncGenerator[bytes]:
        """See `Process`."""
        return self._read(1)

    def errors(self) -> AsyncGenerator[bytes]:
        """See `Process`."""
        return self._read(2)

    async def _read(self, stream: int) -> AsyncGenerator[bytes]:
        taken, ended = 0, False
        try:
            while not ended:
                try:
                    piece, ended = await _answer(self._actor.read.remote(stream, taken))
                except self._ray.exceptions.RayError:  # the worker is gone, and what it had not passed on
                    break
                taken += len(piece)
                if piece:
                    yield piece
        finally:  # nobody may want the rest
            self._known()

    async def wait(self) -> int | None:
        """See `Process`."""
        code: int | None = None
        while code is None:
            try:
                code = await _answer(self._actor.wait.remote())
            except self._ray.exceptions.RayError:
                break
        self._has_ended = True
        self._known()
        return code

    def _known(self) -> None:
        """Note that one more thing about the process is known; end the worker once all are."""
        self._open -= 1
        if not self._open:
            self.kill()

    def stop(self) -> None:
        """See `Process`."""
        if not self._has_ended:
            self._actor.stop.remote()

    def kill(self) -> None:
        """See `Process`."""
        self._aside(partial(_killed, self._ray, self._actor))

    def pause(self) -> None:
        """Raise ConfigError, as Ray cannot pause a process; see `Process`."""
        raise ConfigError("a process on Ray cannot be paused", "--on")

    def resume(self) -> None:
        """See `Process`."""


class _Mark:
    """An actor that exists for as long as its launcher does."""

    def __init__(self, who: str) -> None:
        self._who = who

    def who(self) -> str:
        return self._who


class RayPlace:
    """A Ray cluster as a place. `address` is Ray's address, "auto" for the cluster of this machine.

    `command` is called in each worker with the arguments of a process. `root` is the folder of the project,
    which is copied to the workers; `file` is the deployment file in it. `placed` is the number of seconds for
    the cluster to find room for a process and to start a worker. `gone` is the number of seconds until the
    cluster notices that an earlier launcher has ended.
    """

    def __init__(
        self,
        address: str,
        root: Path,
        file: Path,
        name: str,
        *,
        command: Callable[[Sequence[str]], object],
        placed: float = 60.0,
        gone: float = 20.0,
    ) -> None:
        self._placed = placed
        self._gone = gone
        self._ray = _ray()
        self._address = address
        self._root = root
        self._file = file
        self._command = command
        self._namespace = f"lmos-actors.{name}"
        self._aside: list[threading.Thread] = []

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Keep a connection to the cluster during a block. Raise ConfigError, AlreadyRunning."""
        await self._reach()
        await trio.to_thread.run_sync(self._connect)
        # Python alone handles SIGTERM again: Ray puts a handler before it that prints this process's stack.
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGTERM)
            if handler is not None:  # else a program in C has set it
                signal.signal(signal.SIGTERM, handler)
        try:
            await self._mark()
            yield
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._shut_down)

    def _do_aside(self, call: Callable[[], None]) -> None:
        """Make a call to Ray in a thread, as it may take long if a part of the cluster is cut off."""
        self._aside = [thread for thread in self._aside if thread.is_alive()]
        self._aside.append(threading.Thread(target=call, name="lmos-actors: Ray", daemon=True))
        self._aside[-1].start()

    def _shut_down(self) -> None:
        deadline = time.monotonic() + 5.0  # until Ray has taken note of all killed workers
        for thread in self._aside:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._ray.shutdown()

    async def _reach(self) -> None:
        """Raise ConfigError if nothing listens at the address.

        Without this check Ray would try for minutes, and could not be interrupted.
        """
        address = await trio.to_thread.run_sync(self._named)
        host, _, port = address.removeprefix("ray://").rpartition(":")
        try:
            if not (host and port.isdecimal()):
                raise OSError("an address is written HOST:PORT")
            with trio.fail_after(REACHED):
                await (await trio.open_tcp_stream(host, int(port))).aclose()
        except (OSError, trio.TooSlowError) as error:
            raise self._no_ray(str(error) or f"no connection within {REACHED:g} s") from None

    def _named(self) -> str:
        """Return the address to use; "auto" is replaced by the address that Ray finds. Raise ConfigError."""
        if self._address == "auto":
            find = import_module("ray._private.services").get_ray_address_from_environment
            try:
                self._address = find("auto", None)
            except ConnectionError:
                raise ConfigError(
                    "no Ray runs on this machine: start it by `ray start --head`, or name one by "
                    "ray://HOST:10001 or in RAY_ADDRESS",
                    "--on",
                ) from None
        return self._address

    def _refusal(self, error: Exception) -> ConfigError:
        why = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, ConnectionError):
            return self._no_ray(why)
        hint = ": install the same version of both here and there" if "ersion" in str(error) else ""
        return ConfigError(f"Ray at {self._address!r}: {why}{hint}", "--on")

    def _no_ray(self, why: str) -> ConfigError:
        return ConfigError(
            f"no Ray answers at {self._address!r} ({why}): start it by `ray start --head`, or name another "
            "by ray://HOST:10001 or in RAY_ADDRESS",
            "--on",
        )

    def _connect(self) -> None:
        logging.getLogger("ray").setLevel(logging.ERROR)
        # Ray would report on its workers on standard output, which is ours, whatever `log_to_driver` is. The
        # supervisors of processes report ends in lines of their own.
        vars(import_module("ray._private.worker"))["_worker_logs_enabled"] = False
        for left in reversed(range(CLIENT_STARTS)):
            try:
                self._ray.init(
                    address=self._address,
                    namespace=self._namespace,
                    runtime_env={"working_dir": str(self._root), "excludes": LEFT_OUT},
                    log_to_driver=False,
                    configure_logging=False,
                )
            except Exception as error:
                self._ray.shutdown()  # else Ray would go on sending all calls to the client that has failed
                if not (left and CLIENT_NOT_STARTED in str(error)):
                    raise self._refusal(error) from None
            else:
                return

    async def _mark(self) -> None:
        """Become the launcher of this namespace; wait while the end of an earlier launcher is not yet
        noticed.

        Raise AlreadyRunning, and ConfigError if this package is missing on a machine.
        """
        who = f"process {os.getpid()} on {socket.gethostname()}"
        options = self._ray.remote(_Mark).options(name=LAUNCHER, num_cpus=0)
        deadline = trio.current_time() + self._gone
        while True:
            try:
                self._launcher = await trio.to_thread.run_sync(partial(options.remote, who))
                await _answer(self._launcher.who.remote())
            except ValueError:
                other = await self._other()
                if other is None:
                    continue
                if trio.current_time() >= deadline:
                    raise AlreadyRunning(str(self._file), f"on this cluster, {other}") from None
                await trio.sleep(0.5)
            except self._ray.exceptions.RayError as error:
                raise ConfigError(
                    f"Ray at {self._address!r}: a worker does not start: {_said_of(error)}", "--on"
                ) from None
            else:
                return

    async def _other(self) -> str | None:
        """Return the name of the other launcher; None if it has ended."""
        try:
            actor = await trio.to_thread.run_sync(partial(self._ray.get_actor, LAUNCHER))
            return str(await _answer(actor.who.remote()))
        except (ValueError, self._ray.exceptions.RayError):
            return None

    # ---- processes

    async def start(self, order: Order) -> RayProcess:
        """See `Place`."""
        name = f"{order.name}.{uuid4().hex[:8]}"
        options = self._ray.remote(RayReplica).options(
            name=name,
            lifetime="detached",
            max_restarts=0,
            max_concurrency=8,  # two streams, its end, and other questions at once
            num_cpus=order.processors or 0,
            scheduling_strategy="SPREAD",
        )
        actor: Any = None
        try:
            actor = await trio.to_thread.run_sync(options.remote, self._command)
            with trio.move_on_after(self._placed) as scope:
                words, files = self._shipped(order.arguments)
                environment = dict(order.environment)
                host, pid = await _answer(actor.begin.remote(words, files, environment, version()))
                return RayProcess(self._ray, actor, f"{pid}@{host}", self._do_aside)
            assert scope.cancelled_caught
            self._do_aside(partial(_killed, self._ray, actor))
        except self._ray.exceptions.RayError as error:
            self._do_aside(partial(_killed, self._ray, actor))
            raise StartFailed(order.name, f"Ray: {_said_of(error)}") from None
        raise StartFailed(order.name, await trio.to_thread.run_sync(self._no_room, order))

    def _shipped(self, words: Sequence[str]) -> tuple[list[str], list[tuple[str, bytes]]]:
        """Return the arguments for a worker, and the files to send with them, as a worker has only the
        project.
        """
        placed: list[str] = []
        files: list[tuple[str, bytes]] = []
        for word in words:
            path = Path(word)
            if path == self._file:
                placed.append(str(path.relative_to(self._root)))
            elif path.is_absolute() and path.is_file():
                files.append((path.name, path.read_bytes()))
                placed.append(f"{SHIPPED}{path.name}")
            else:
                placed.append(word)
        return placed, files

    def _no_room(self, order: Order) -> str:
        free = self._ray.available_resources().get("CPU", 0)
        alive = [node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"]]
        return (
            f"the cluster has had no room for {self._placed:g} s: it wants {order.processors or 0} "
            f"processors of one machine (`limits`); the largest has {max(alive, default=0):g}, and {free:g} "
            "are free on all machines together"
        )

    # ---- what an earlier launcher has left

    async def left(self) -> list[str]:
        """Return the names of the processes of an earlier launcher that still run."""
        named = await trio.to_thread.run_sync(self._ray.util.list_named_actors)
        return sorted(name for name in named if name != LAUNCHER)

    async def wait_left(self, seconds: float) -> None:
        """Drain the processes of an earlier launcher and wait for their end; kill them after `seconds`."""
        for name in await self.left():
            with suppress(ValueError):
                actor = await trio.to_thread.run_sync(partial(self._ray.get_actor, name))
                actor.stop.remote()
        deadline = trio.current_time() + seconds
        while found := await self.left():
            if trio.current_time() >= deadline:
                for name in found:
                    with suppress(ValueError):
                        self._ray.kill(await trio.to_thread.run_sync(partial(self._ray.get_actor, name)))
            await trio.sleep(0.2)

    def check(self, plan: LaunchPlan) -> None:
        """Raise ConfigError if a group depends on one machine and the cluster has several; see `Place`."""
        machines = {node["NodeManagerAddress"] for node in self._ray.nodes() if node["Alive"]}
        for group in plan.groups if len(machines) > 1 else ():
            for why in group.only_here:
                raise ConfigError(f'the group "{group.name}" {why}, and Ray runs it on any machine', "--on")


def _killed(ray: Any, actor: Any) -> None:
    """Make Ray end the worker of an actor at once. Blocks until Ray has accepted the request."""
    with suppress(ray.exceptions.RayError, ValueError):  # ValueError: there is none
        ray.kill(actor)


def _said_of(error: Exception) -> str:
    """Return the line of a Ray error with the reason, which is the last line if there is a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1] if any(line.startswith("File ") for line in lines) else lines[0]
