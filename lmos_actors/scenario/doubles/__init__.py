"""Agents that stand in for others: mocks by rules, replays by recordings."""

from ._mocks import Script as Script, mock_class as mock_class, mock_contract as mock_contract
from ._recordings import (
    Recordings as Recordings,
    contract_of as contract_of,
    log_path as log_path,
    replays_among as replays_among,
    tape_of as tape_of,
)
from ._replays import Player as Player, replay_class as replay_class
from ._tapes import Recording as Recording
from ._untyped import Loose as Loose, untyped_class as untyped_class
