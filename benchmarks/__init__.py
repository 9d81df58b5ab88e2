"""Measures of speed as ratios: `python -m benchmarks`."""
