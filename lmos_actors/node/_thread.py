"""A node in a thread of its own, for notebooks and for scripts that do not use trio."""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from lmos_actors.errors import AgentError
from lmos_actors.observe import dump_signal
from lmos_actors.portal import wait_for

from ._lifecycle import open_stages
from ._node import Node

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from lmos_actors.portal import Portal
    from lmos_actors.supervision import SupervisorSpec

    from ._options import RuntimeOptions


class NodeThread:
    """A node that runs in a thread of its own; made by `open_node_in_thread`.

    As a context manager it returns the portal and closes the node at the end; or call `close()`. A node that
    is still open when the interpreter exits is closed then. A forked process does not have the node: there
    `close()` does nothing.
    """

    def __init__(self, tree: SupervisorSpec | None, options: RuntimeOptions) -> None:
        self._tree = tree
        self._options = options
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._closed = False
        self._abandoned = False
        self._failure: BaseException | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._starting = trio.CancelScope()
        self._leave: Callable[[], None] = self._starting.cancel
        self._node: Node | None = None
        self._portal: Portal | None = None
        self._thread = threading.Thread(target=self._run, name="lmos node", daemon=True)
        self._process = os.getpid()

    @property
    def portal(self) -> Portal:
        """The portal of the node, for any thread but the node's own."""
        assert self._portal is not None
        return self._portal

    @property
    def node(self) -> Node:
        """The node itself, to be used in its own thread: `portal.run(thread.node.start_child, spec)`."""
        assert self._node is not None
        return self._node

    def close(self) -> None:
        """Stop the node in order and wait until it has ended; blocks. Repeated calls do nothing.

        Raises the error that ended the node, if any, such as RestartIntensityExceeded. Ctrl-C during the wait
        stops the node at once. Raises RuntimeError in the node's own thread.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("a node's own thread cannot wait for its end")
        if self._closed or os.getpid() != self._process:
            return
        try:
            self._run_in_node(self._leave)
            wait_for(self._ended)
        except BaseException:
            self._run_in_node(self._force_stop)
            self._ended.wait()
            raise
        finally:
            self._unregister()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Portal:
        return self.portal

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BaseException as own:
            if error is None or isinstance(error, AgentError) or not isinstance(own, Exception):
                raise  # the body's error followed from this one, and is its context
            raise BaseExceptionGroup("errors of one node", [error, own]) from None

    # ---- in the caller's thread

    def _start(self) -> None:
        """Start the thread and wait until the tree has started. Raises what open_node raises."""
        try:
            try:
                self._thread.start()
            except RuntimeError:  # no more threads can be started; this one will never set its event
                self._ended.set()
                raise
            atexit.register(self.close)
            dump_signal.claim(self)
            wait_for(self._ready)
        except BaseException:
            self._abandoned = True
            self._run_in_node(self._leave)
            self._ended.wait()
            self._unregister()
            raise
        if self._node is None:
            self.close()

    def _run_in_node(self, fn: Callable[[], object]) -> None:
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(fn)

    def _force_stop(self) -> None:
        if self._node is not None:
            self._node.force_stop()

    def _unregister(self) -> None:
        if self._ended.is_set():
            self._closed = True
            if self._thread.ident is not None:
                self._thread.join()
            dump_signal.release(self)
            atexit.unregister(self.close)

    # ---- in the node's thread

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as exc:  # noqa: ASYNC103 -- outside of trio: `close` raises it
            self._failure = exc
        finally:
            self._ended.set()
            self._ready.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._starting:
            if self._abandoned:
                return
            async with open_stages(self._tree, self._options) as stages:
                node = Node(stages)
                left = trio.Event()
                self._leave = left.set
                self._portal = node.portal()
                self._node = node
                self._ready.set()
                await left.wait()


def open_in_thread(tree: SupervisorSpec | None, options: RuntimeOptions) -> NodeThread:
    """Open a node in a thread of its own, and return when its tree has started. See `open_node_in_thread`."""
    thread = NodeThread(tree, options)
    thread._start()  # pyright: ignore[reportPrivateUsage] # nothing else starts it
    return thread
