"""Reading of scenario files: every name is resolved and every value checked before a run."""

from lmos_actors._late import late

with late(__name__):
    from ._key_order import orders_of as orders_of
    from ._load import load_scenario as load_scenario
    from ._resolve import Cell as Cell, Resolved as Resolved, resolve as resolve
    from ._selection import (
        Selection as Selection,
        expression as expression,
        label_of as label_of,
        selection as selection,
        with_end_at as with_end_at,
    )
    from .validators._topology import neighbours_of as neighbours_of
