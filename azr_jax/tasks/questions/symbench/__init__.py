"""SymBench's public files as questions: see `reader.py`."""
