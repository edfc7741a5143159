"""The options of a node and of its usual services, and the functions that make these services.

Packages of services are imported inside functions: a node that does not use one does not load it, and runs
even if that package is not installed.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors._wings import is_away
from lmos_actors.errors import ConfigError
from lmos_actors.node import NodeService, RuntimeOptions, argument

from ._approvals import ApprovalService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from os import PathLike

    from lmos_actors.approvals import ApprovalOptions
    from lmos_actors.directory import DirectoryOptions
    from lmos_actors.facades import OmniaOptions, RelayBridge, RelayOptions
    from lmos_actors.live import PageOptions
    from lmos_actors.mcp import McpOptions

SERVED: Final = ("omnia", "mcp", "relay", "bridges", "page")
"""Options that take an address to listen at."""


def _seconds(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Check that an option is a number of seconds."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < inf:
        raise ConfigError(f"needs seconds above 0, not {value!r}", argument(attribute.name))


@attrs.frozen(kw_only=True)
class NodeOptions(RuntimeOptions):
    """The options of a node, by the names that they have as arguments of `open_node`.

    Raises ConfigError for an option that is invalid or does not go with another. Whether the addresses of
    `listen` are safe to listen at is checked when the node opens, as it depends on the network.
    """

    directory: DirectoryOptions | str | PathLike[str] | bool | None = None
    approvals: bool | ApprovalOptions = False
    approval_seconds: float = attrs.field(default=86_400.0, validator=_seconds)
    page: bool | PageOptions | None = None
    omnia: bool | OmniaOptions = False
    mcp: bool | McpOptions = False
    relay: bool | RelayOptions = False
    bridges: Sequence[RelayBridge] = ()

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if not self.endpoints:
            self.check_no_server(SERVED)
        if self.register is True and not self.directory:
            raise ConfigError(
                "True is the directory of the node itself: directory=... hosts it", argument("register")
            )
        if self.page and self.is_exposed and self.is_open:
            raise ConfigError(
                "is not for all who reach a node without security: listen at 127.0.0.1, or use security=",
                argument("page"),
            )

    def all_services(self) -> Sequence[Callable[[], NodeService]]:
        """Return the functions that make the services of the options, followed by the given functions."""
        return (*self._usual(), *self.services)

    def _usual(self) -> Iterator[Callable[[], NodeService]]:
        """Yield a function for each service that the options name, in the order of their agents.

        Omnia comes last: if it serves `only` its own protocol, it refuses everything that no other service
        accepted.
        """
        limits = None if isinstance(self.approvals, bool) else self.approvals
        yield partial(ApprovalService, self.approval_seconds, limits, used=self._begins_with_approvals)
        if self.endpoints and (not self.is_exposed if self.page is None else self.page):
            yield from self._page()
        if self.relay:
            yield self._relay
        if self.directory:
            yield self._directory
        if self.mcp:
            yield self._mcp
        if self.bridges:
            yield self._bridges
        if self.omnia:
            yield self._omnia

    @property
    def _begins_with_approvals(self) -> bool:
        """Whether the agent `approvals` starts with the node, by an option or because clients may decide."""
        lists = () if self.security is None else self.effective_security().access.values()
        return bool(self.approvals) or self.allow_operations or any(each.approve for each in lists)

    def _page(self) -> Iterator[Callable[[], NodeService]]:
        """Yield the function that makes the page.

        Yields nothing if the page's package is missing and no option asks for the page.
        """
        try:
            from lmos_actors.live import LiveServer
        except ImportError as missing:
            if self.page or not is_away(missing):
                raise
            return
        yield partial(LiveServer, options=None if isinstance(self.page, bool) else self.page)

    def _relay(self) -> NodeService:
        from lmos_actors.facades.relay import RelayServer

        return RelayServer(None if isinstance(self.relay, bool) else self.relay)

    def _directory(self) -> NodeService:
        from lmos_actors.directory import DirectoryService

        assert self.directory is not None  # else nothing calls this
        return DirectoryService(self.directory)

    def _mcp(self) -> NodeService:
        from lmos_actors.mcp import McpOptions, mcp_service

        given = McpOptions() if isinstance(self.mcp, bool) else self.mcp
        if not isinstance(given, McpOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"must be True or McpOptions, not {given!r}", argument("mcp"))
        return mcp_service(given)

    def _bridges(self) -> NodeService:
        from lmos_actors.facades.relay import Bridges

        return Bridges(self.bridges)

    def _omnia(self) -> NodeService:
        from lmos_actors.facades.omnia import OmniaServer

        return OmniaServer(None if isinstance(self.omnia, bool) else self.omnia)
