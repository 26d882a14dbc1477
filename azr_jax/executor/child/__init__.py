"""The untrusted side: what runs inside the sandbox, started by path.

These modules import each other by their bare names, because the zygote runs
without the package on its path.
"""
