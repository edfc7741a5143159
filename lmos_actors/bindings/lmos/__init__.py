"""LMOS over WebSockets: the server of a node's agents, and links to agents of other nodes."""
