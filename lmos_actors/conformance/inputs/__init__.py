"""Values for data schemas: valid, at the bounds, and wrong."""

from lmos_actors._late import late

with late(__name__):
    from ._inputs import (
        Sample as Sample,
        another as another,
        fits as fits,
        largest as largest,
        samples as samples,
        smallest as smallest,
        valid as valid,
    )
    from ._patterns import matching as matching
    from ._schemas import as_object as as_object, is_array as is_array, is_object as is_object, same as same
    from ._weights import DEEPEST as DEEPEST, depth_of as depth_of
