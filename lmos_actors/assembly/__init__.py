"""The node as users open it, with its usual services, each made only if an option asks for it."""

from lmos_actors._late import late

with late(__name__):
    from ._open import open_node as open_node, open_node_in_thread as open_node_in_thread
    from ._options import NodeOptions as NodeOptions
