"""The live view of a node: what its page and other viewers show while the node runs.

The public names are imported from here, as in `from lmos_actors.live import LiveServer`.
"""

from lmos_actors._late import late

with late(__name__):
    from ._audit import AuditEntry as AuditEntry
    from ._client import LiveClient as LiveClient, open_live as open_live
    from ._flow_records import FlowRecords as FlowRecords
    from ._messages import Do as Do, Refused as Refused, Wrong as Wrong
    from ._operations import Operation as Operation, OwnOperations as OwnOperations
    from ._options import PageOptions as PageOptions
    from ._server import LiveServer as LiveServer
