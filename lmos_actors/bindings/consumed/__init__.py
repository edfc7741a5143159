"""From an address, a description or a file to refs of agents elsewhere."""
