"""The directory: a supervised agent on SQLite, and its API over HTTP."""

from lmos_actors._late import late

with late(__name__):
    from ._agent import Notice as Notice, Page as Page, ThingDirectory as ThingDirectory
    from ._hosting import (
        OwnDirectory as OwnDirectory,
        directory_routes as directory_routes,
        directory_spec as directory_spec,
    )
    from ._options import DirectoryOptions as DirectoryOptions
    from ._service import DirectoryService as DirectoryService
