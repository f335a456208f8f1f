"""Copies between host and device, and copies beside kernels: what only a real GPU can show."""
