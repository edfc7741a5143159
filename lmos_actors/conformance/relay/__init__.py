"""The kit for AgentRelay, which judges any hub."""

from lmos_actors._late import late

with late(__name__):
    from ._all import RelayConformOptions as RelayConformOptions, all_relay_cases as all_relay_cases
