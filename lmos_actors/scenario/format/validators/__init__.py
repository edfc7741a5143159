"""Checks of a scenario file before a run: every value is checked, and every name resolved.

`_cell_check` checks one cell of a file and calls the other validators, one for each part of a file: steps,
expectations, faults, checks, doubles, topologies. All of them use `lmos_actors/system/_value_validator`.
"""
