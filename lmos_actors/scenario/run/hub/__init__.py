"""The hub of a run: who is on it, and what is said there."""

from lmos_actors._late import late

with late(__name__):
    from ._hub import RunHub as RunHub
