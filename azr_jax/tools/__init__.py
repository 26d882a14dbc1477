"""Tools that a model may call: Python, and functions of users."""
