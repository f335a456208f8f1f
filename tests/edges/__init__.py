"""Every arithmetic form on edge operands: small kernels, a plan for a GPU, and what a GPU answered.

``cases*.py`` list the forms, ``operands.py`` the operands, ``plan.py`` writes both for a GPU.
"""
