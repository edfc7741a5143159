"""Crash reports: what happened, where, on what message, as text without secrets."""
