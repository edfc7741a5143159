"""Execution of `export`: a deployment in the formats of other supervisors, one file for each format."""
