"""The way into a node for threads and for asyncio code."""

from ._jobs import PortalNode as PortalNode
from ._portal import Portal as Portal, PortalFeed as PortalFeed, open_portal as open_portal
