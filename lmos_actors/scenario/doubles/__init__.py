"""Agents that stand in for others: mocks, which follow rules, and replays, which follow recordings."""

from lmos_actors._late import late

with late(__name__):
    from ._mocks import (
        MockScript as MockScript,
        mock_class as mock_class,
        mock_contract as mock_contract,
        on_hub as on_hub,
    )
    from ._models import is_live as is_live, is_model as is_model
    from ._recordings import (
        RecordedAgent as RecordedAgent,
        Recording as Recording,
        Recordings as Recordings,
        log_path as log_path,
        recorded_agent_of as recorded_agent_of,
        replays_among as replays_among,
    )
    from ._replays import (
        ReplayScript as ReplayScript,
        contract_of as contract_of,
        replay_class as replay_class,
    )
    from ._rules import named_sender as named_sender, tools_after as tools_after
    from ._uses import USES as USES
