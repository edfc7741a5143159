"""Execution of `explore`."""
