"""The check API: the tick and its fellows, called from outside."""
