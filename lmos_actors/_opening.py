"""How a node begins to end, and in which order its stages do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from ._connections import Connections
    from .actors import ExitReason
    from .supervision import Supervisor


class Opening:
    """What one `open_node` has to remember between its stages."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.body = trio.CancelScope()
        self.left = False
        self.root: Supervisor | None = None
        self.connections: Connections | None = None

    def fatal(self, exc: BaseException) -> None:
        """Something ended the node: the body is cancelled, the exception raised out of it.

        Ctrl-C that comes when the body has ended gives nobody more time, whatever code it hits.
        """
        self.errors.append(exc)
        self.body.cancel("the node has failed")
        if self.root is not None:
            self.root.rt.failed = True
            if self.left and isinstance(exc, KeyboardInterrupt):
                self.hurry()

    def hurry(self) -> None:
        """Give nobody any more time."""
        if self.root is not None:
            self.root.kill()
        if self.connections is not None:
            self.connections.hurry()

    def root_ended(self, reason: ExitReason) -> None:
        """The root supervisor has ended, by itself or with the node."""
        if reason.error is not None:
            self.fatal(reason.error)
        elif not self.left:
            self.body.cancel("the root supervisor has ended")

    @trio.lowlevel.enable_ki_protection
    async def end(self, root: Supervisor, connections: Connections) -> None:
        """End the stages inside out, each whatever has become of the one before."""
        self.left = True
        connections.refuse()
        try:
            try:
                await connections.give_notice()
            finally:
                await _stop(root)
        finally:
            try:
                await connections.close()
            finally:
                root.bury()
                root.rt.end()
                await root.rt.outside.close()


@trio.lowlevel.enable_ki_protection
async def _stop(root: Supervisor) -> None:
    with trio.CancelScope(shield=True):
        try:
            await root.stop()
        except KeyboardInterrupt:
            root.kill()
            await _stop(root)
            raise
