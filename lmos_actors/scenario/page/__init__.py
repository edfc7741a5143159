"""The page of runs, in a package of its own because it is served only on request."""

from lmos_actors._late import late

with late(__name__):
    from ._runs_page import RunsPage as RunsPage
