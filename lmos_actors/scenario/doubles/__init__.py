"""Agents that stand in for others: mocks by rules, replays by recordings."""

from ._mocks import MockScript as MockScript, mock_class as mock_class, mock_contract as mock_contract
from ._recorded_agents import Recording as Recording
from ._recordings import (
    Recordings as Recordings,
    contract_of as contract_of,
    log_path as log_path,
    recorded_agent_of as recorded_agent_of,
    replays_among as replays_among,
)
from ._replays import ReplayScript as ReplayScript, replay_class as replay_class
from ._untyped import UntypedOperation as UntypedOperation, untyped_class as untyped_class
