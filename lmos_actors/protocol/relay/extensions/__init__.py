"""Extensions of a hub: receipts, presence, history, semantic queries, and votes."""

from ._history import History as History, HistoryOptions as HistoryOptions
from ._presence import Presence as Presence
from ._receipts import Receipts as Receipts
from ._semantic import Semantic as Semantic
from ._voting import Voting as Voting
