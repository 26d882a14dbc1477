"""Tools that a model may call: Python scripts and user functions."""
