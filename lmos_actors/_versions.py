"""The versions of Python that the package is tested with.

Older versions import this file, too; see `__main__.py`.
"""

OLDEST = (3, 11)
NEWEST = (3, 15)
TESTED = "{}.{} to {}.{}".format(*OLDEST, *NEWEST)
