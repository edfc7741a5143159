"""Execution of `explore`."""

from lmos_actors._late import late

with late(__name__):
    from ._explore import explore_file as explore_file
    from ._show import ExploreShow as ExploreShow, find_lines as find_lines
