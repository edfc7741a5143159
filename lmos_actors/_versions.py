"""The versions of Python that the package is tested with. Older ones import this, too: see `__main__.py`."""

OLDEST = (3, 11)
NEWEST = (3, 15)
TESTED = "{}.{} to {}.{}".format(*OLDEST, *NEWEST)
