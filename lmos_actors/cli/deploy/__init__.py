"""Execution of the commands of deployments: `up` and those that speak with the launcher that it is."""
