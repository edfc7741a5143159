"""The kit for AgentRelay: judges any hub."""

from ._all import (
    RelayConformOptions as RelayConformOptions,
    all_relay_cases as all_relay_cases,
    chosen_relay as chosen_relay,
)
from ._judge import judge_relay as judge_relay
