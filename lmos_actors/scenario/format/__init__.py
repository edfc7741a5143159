"""Scenario files as they are read: every name resolved and every value checked before a run."""

from ._check import load_scenario as load_scenario
from ._classes import Planter as Planter, back_off as back_off
from ._fields import (
    FieldOf as FieldOf,
    accepts as accepts,
    by_state_name as by_state_name,
    fields_of_agent as fields_of_agent,
)
from ._order import orders_of as orders_of
from ._resolve import Cell as Cell, Resolved as Resolved, resolve as resolve
from ._targets import import_target as import_target, project_root as project_root
from ._topology import neighbours_of as neighbours_of
from ._trees import UsedTree as UsedTree, use_tree as use_tree
from ._until import stopped_at as stopped_at
