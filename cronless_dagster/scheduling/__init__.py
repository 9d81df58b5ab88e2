"""The scheduling core: pure functions from schedules, instants and outcomes to plans.

Nothing in here reads a clock, the environment or a source of randomness, and nothing does I/O beyond
reading the pinned zone data. Instants are aware datetimes in UTC; naive datetimes are local times of
a zone that stands beside them, and never leave this package.
"""
