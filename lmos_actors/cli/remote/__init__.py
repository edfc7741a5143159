"""Talking to agents elsewhere: `call`, `read`, `write`, `observe`, `listen`, `monitor`."""
