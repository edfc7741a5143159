"""Execution of the commands of deployments: `up`, the launcher, and those that talk to it."""
