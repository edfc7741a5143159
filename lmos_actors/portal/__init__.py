"""The portal into a node for other threads and for asyncio code."""

from lmos_actors._late import late

with late(__name__):
    from ._jobs import PortalNode as PortalNode, wait_for as wait_for
    from ._portal import Portal as Portal, PortalFeed as PortalFeed, open_portal as open_portal
