"""Measurements: ratios inside one run, never absolute promises. `./dev bench` runs them all."""
