"""Checks: what a call from outside asks of the state, and what it does only if it is time."""
