"""The external client: which checks to call in which minute, and the calling. Standard library only."""
