"""Conversations with remote agents: `call`, `read`, `write`, `observe`, `listen`, `monitor`."""
