"""The story of a run: steps one after another, or entries of a timeline."""

from lmos_actors._late import late

with late(__name__):
    from .._step_text import fault_of as fault_of
    from ._remedies import remedy_for as remedy_for
    from ._step_executor import unknown_step as unknown_step
    from ._steps import Story as Story
    from ._timeline import Timeline as Timeline, entries_of as entries_of
