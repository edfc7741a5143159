"""Agents over HTTP: the client's side."""
