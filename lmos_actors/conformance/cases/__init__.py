"""Cases for servers, one file for each chapter of the report card."""

from lmos_actors._late import late

with late(__name__):
    from ._all import all_cases as all_cases
