"""A node: its options, the stages of its life, its connections, and discovery."""

from ._lifecycle import NodeStages as NodeStages, open_stages as open_stages
from ._node import Node as Node, open_node as open_node
from ._options import NodeOptions as NodeOptions, encode_headers as encode_headers
from ._page_door import open_page as open_page
from ._thread import NodeThread as NodeThread, open_node_in_thread as open_node_in_thread
