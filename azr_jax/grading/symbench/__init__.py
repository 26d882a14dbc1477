"""Graders for the 33 SymBench tasks (R1-CI, table 6); start at `grader.py`."""
