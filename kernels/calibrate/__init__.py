"""Microbenchmarks: one property of the hardware each; see docs/profiles.md."""
