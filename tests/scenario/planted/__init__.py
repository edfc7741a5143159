"""Agents with a bug each, and the files in which `explore` has to find it."""
