"""Reads the public files of SymBench as questions; start at `reader.py`."""
