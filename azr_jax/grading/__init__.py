"""Graders of answers. None evaluates model text in the trainer's process."""
