"""The live view of a node: what its page, and others, see of it while it works.

The public names are imported from here, as in `from lmos_actors.live import LiveServer`.
"""

from ._client import LiveClient as LiveClient, open_live as open_live
from ._messages import Wrong as Wrong
from ._server import LiveServer as LiveServer
