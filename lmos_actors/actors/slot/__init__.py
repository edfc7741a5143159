"""Slots: the place of an agent in the tree, its mailbox and its lives."""
