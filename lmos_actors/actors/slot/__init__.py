"""Slots: an agent's place in the tree, its mailbox and its lives."""
