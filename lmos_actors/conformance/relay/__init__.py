"""The kit for AgentRelay: judges any hub."""

from ._all import RelayConformOptions as RelayConformOptions, all_relay_cases as all_relay_cases
