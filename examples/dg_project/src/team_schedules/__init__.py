"""A made-up team: its handlers, its own assets, and the schedule of both."""
