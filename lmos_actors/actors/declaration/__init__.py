"""Declarations of an agent class, and the contract compiled from them."""
