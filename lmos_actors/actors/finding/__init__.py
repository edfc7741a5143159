"""Refs to agents that are looked for, to pools, and to several agents at once."""
