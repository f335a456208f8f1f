"""Predicting time: device profiles, and what is computed with them."""
