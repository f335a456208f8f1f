"""Traces: the memory and branch events of launches in a compressed file, to be counted again without executing."""

from gpusim.trace.reader import RecordedLaunch, Trace, load_trace
from gpusim.trace.recorder import TraceRecorder

__all__ = ["RecordedLaunch", "Trace", "TraceRecorder", "load_trace"]
