"""Agents over HTTP: the server's side."""
