"""Execution of `explore`."""

from lmos_actors._late import late

with late(__name__):
    from ._explore import explore_file as explore_file
    from ._finds import Finds as Finds
    from ._folder import Find as Find, Folder as Folder
    from ._show import ExploreShow as ExploreShow, find_lines as find_lines
