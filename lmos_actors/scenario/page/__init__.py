"""The page of runs, apart from their face, as it is served only where somebody asks for it."""

from lmos_actors._late import late

with late(__name__):
    from ._runs_page import RunsPage as RunsPage
