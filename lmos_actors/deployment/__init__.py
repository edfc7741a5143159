"""Deployments: their files, their processes, faults of their connections, and files for other supervisors."""
