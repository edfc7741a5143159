"""The search of `explore`, and the shrinking of what it finds: decisions alone, which run nothing."""

from ._search import BATCH as BATCH, Outcome as Outcome, Schedule as Schedule, Search as Search
from ._space import Permit as Permit, ScheduledFault as ScheduledFault, Space as Space, space_of as space_of
