"""Finds the mathematical answer in a response and grades it."""
