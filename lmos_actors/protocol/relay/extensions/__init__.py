"""Extensions of a hub: receipts, presence, history, semantic queries, votes, and questions to people."""

from lmos_actors._late import late

with late(__name__):
    from ._history import History as History, HistoryOptions as HistoryOptions
    from ._presence import Presence as Presence
    from ._questions import WAITING as WAITING, Questions as Questions
    from ._receipts import Receipts as Receipts
    from ._semantic import Semantic as Semantic
    from ._voting import Voting as Voting
