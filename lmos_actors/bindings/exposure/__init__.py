"""The exposed side of a node: names, descriptions, their visibility, and values to be sent."""
