"""Replay a plan of launches on a GPU through CuPy: the program that a profiler is attached to.

``python -m gpusim.runner.replay PLAN [--results FILE]`` (or run as a plain file: it needs only NumPy and CuPy).  PLAN
is a JSON file: ``{"cubins": {name: path}, "launches": [...]}``; paths are relative to it.  A launch has ``id``,
``cubin``, ``kernel`` (mangled name), ``grid``, ``block``, ``shared`` and ``args``.  An argument is
``{"scalar": dtype, "value": x}``, ``{"bytes": digits}`` (a structure by value, hexadecimal), ``{"buffer": name}`` with
``dtype`` and ``count`` or ``values`` and ``fill`` (zeros, nan, arange, constant with ``value``, random or permutation
with ``seed``) at its first use within the launch's ``group``, or an ``array`` of an npz ``file`` beside the plan.
Launches of one group share buffers.
With ``--results`` a digest of every buffer after the group's last launch is written, so that a simulator's results can
be compared bit by bit; with ``--values`` the contents, except of buffers with ``"keep": false``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def make_buffer(spec: dict[str, Any], folder: Path | None = None) -> np.ndarray[Any, Any]:
    """The initial contents of a buffer that a plan (in ``folder``) describes."""
    if "file" in spec and folder is not None:
        with np.load(folder / spec["file"]) as arrays:
            return np.asarray(arrays[spec["array"]])
    dtype = np.dtype(spec["dtype"])
    if "values" in spec:
        return np.array(spec["values"], dtype)
    count, fill = int(spec["count"]), spec.get("fill", "zeros")
    if fill == "zeros":
        return np.zeros(count, dtype)
    if fill == "nan":
        return np.full(count, np.nan, dtype)
    if fill == "arange":
        return np.arange(count).astype(dtype)
    if fill == "constant":
        return np.full(count, spec["value"], dtype)
    if fill == "permutation":
        return np.random.default_rng(spec.get("seed", 0)).permutation(count).astype(dtype)
    if fill == "random":
        generator = np.random.default_rng(spec.get("seed", 0))
        if dtype.kind == "f":
            return generator.random(count).astype(dtype)
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, count, dtype, endpoint=True)
    raise ValueError(f"fill {fill!r}")


def main(arguments: list[str] | None = None) -> int:
    """Run every launch of the plan in order."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--values", type=Path, help="also keep the buffers' contents (npz)")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=None)
    options = parser.parse_args(arguments)

    import cupy

    plan = json.loads(options.plan.read_text())
    folder = options.plan.parent
    modules: dict[str, Any] = {}
    results: dict[str, Any] = {}
    values: dict[str, Any] = {}
    buffers: dict[str, Any] = {}
    group: object = None
    end = None if options.count is None else options.first + options.count
    for launch in plan["launches"][options.first : end]:
        if launch.get("group", launch["id"]) != group:
            buffers, group = {}, launch.get("group", launch["id"])
        name = launch["cubin"]
        if name not in modules:
            modules[name] = cupy.RawModule(path=str(folder / plan["cubins"][name]))
        kernel = modules[name].get_function(launch["kernel"])
        args = []
        for spec in launch["args"]:
            if "scalar" in spec:
                args.append(np.dtype(spec["scalar"]).type(spec["value"]))
                continue
            if "bytes" in spec:
                raw = bytes.fromhex(spec["bytes"])
                args.append(np.frombuffer(raw, f"V{len(raw)}"))  # CuPy passes an array of one element by value
                continue
            if spec["buffer"] not in buffers:
                buffers[spec["buffer"]] = cupy.asarray(make_buffer(spec, folder))
            args.append(buffers[spec["buffer"]])
        shared = launch.get("shared", 0)
        if shared > 48 * 1024:
            kernel.max_dynamic_shared_size_bytes = shared
        kernel(tuple(launch["grid"]), tuple(launch["block"]), tuple(args), shared_mem=shared)
        cupy.cuda.Device().synchronize()
        if options.values is not None:
            unwanted = {spec["buffer"] for spec in launch["args"] if "buffer" in spec and not spec.get("keep", True)}
            values |= {
                f"{launch['id']} {key}": cupy.asnumpy(value) for key, value in buffers.items() if key not in unwanted
            }
        if options.results is not None:
            results[launch["id"]] = {
                key: hashlib.sha256(cupy.asnumpy(value).tobytes()).hexdigest()[:32] for key, value in buffers.items()
            }
    if options.results is not None:
        options.results.write_text(json.dumps(results))
    if options.values is not None:
        np.savez_compressed(options.values, **values)
    return 0


if __name__ == "__main__":
    sys.exit(main())
