"""Grading of SymBench's 33 tasks (seed 001, table 6): see `grader.py`."""
