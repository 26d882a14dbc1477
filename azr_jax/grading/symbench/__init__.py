"""Grades the 33 tasks of SymBench (R1-CI, table 6); start at `grader.py`."""
