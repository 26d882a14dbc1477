"""Graders that tasks and benchmarks share. They parse text, and run none."""
