"""The way into a node for threads and for asyncio code."""

from ._entrance import Home as Home
from ._portal import Portal as Portal, PortalFeed as PortalFeed, open_portal as open_portal
