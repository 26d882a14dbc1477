"""Graders for reasoning-gym; see `grader.py`."""
