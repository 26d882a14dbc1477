"""Grades answers of reasoning-gym; see `grader.py`."""
