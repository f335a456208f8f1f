"""Counters: pure counting rules, the listener that applies them, and the table of Nsight Compute's names."""

from gpusim.counters.collect import Collector, count_rows
from gpusim.counters.metrics import METRICS, Metric

__all__ = ["METRICS", "Collector", "Metric", "count_rows"]
