"""The exposed side of a node: names, descriptions, their visibility, and values on their way out."""
