"""Parses tags, code fences and message contents."""
