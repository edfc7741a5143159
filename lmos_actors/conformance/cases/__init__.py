"""Cases for servers, one file for each chapter of the report card."""

from ._all import all_cases as all_cases
