"""The hub of a run: its members and their messages."""

from lmos_actors._late import late

with late(__name__):
    from ._hub import RunHub as RunHub
