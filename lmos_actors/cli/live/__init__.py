"""The commands that look at a node over its live view: `top`, `tree`, `inspect`, `deadletters`."""
