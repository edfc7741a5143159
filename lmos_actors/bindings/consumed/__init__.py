"""Consuming agents elsewhere: refs are made from an address, a description or a file."""
