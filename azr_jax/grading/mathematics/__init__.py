"""Finds the mathematical answer in a response and compares it."""
