"""Example agents: those that the scenarios of this repository are about."""
