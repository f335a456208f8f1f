"""Finds the packages: a new family of kernels, or module of gpusim, needs no entry anywhere.

``kernels/`` and ``runner/`` stand beside ``gpusim/`` and are installed inside it; everything else is in pyproject.toml.
"""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["gpusim", "gpusim.*"]),
        "gpusim.kernels",
        *(f"gpusim.kernels.{name}" for name in find_packages("kernels")),
        "gpusim.runner",
    ],
    package_dir={"gpusim": "gpusim", "gpusim.kernels": "kernels", "gpusim.runner": "runner"},
    package_data={
        "gpusim": ["py.typed", "sass/*.npz", "timing/*.json", "timing/profiles/*.json"],
        "gpusim.kernels": ["**/*.cu", "**/*.cuh"],
        "gpusim.runner": ["recorded/*.gz", "recorded/*.json"],
    },
)
