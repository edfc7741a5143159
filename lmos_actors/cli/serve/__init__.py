"""Serving agents: `serve` and `directory serve`."""
