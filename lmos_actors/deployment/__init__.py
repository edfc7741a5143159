"""Deployments: their files and processes, faults of connections, and exports for other supervisors."""
