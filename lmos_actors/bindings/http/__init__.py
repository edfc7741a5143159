"""Agents served over HTTP. This package imports Starlette, which nodes that only consume do not need."""

from lmos_actors._late import late

with late(__name__):
    from ._app import http_app as http_app
    from ._requests import best_of as best_of, has_tag as has_tag, negotiate as negotiate
    from ._responses import (
        HttpError as HttpError,
        allow as allow,
        only_head as only_head,
        problem_response as problem_response,
    )
