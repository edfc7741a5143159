"""The page of runs. It is a separate package because it is served only on request."""

from lmos_actors._late import late

with late(__name__):
    from ._runs_page import RunsPage as RunsPage
