"""The untrusted side: code that runs in a zygote or inside the sandbox.

These modules import each other by their bare names, because the zygote is
started by path and does not have the package on `sys.path`.
"""
