"""The page of runs, apart from their face, as it is served only where somebody asks for it."""

from ._runs_page import RunsPage as RunsPage
