"""The laboratory measures the library, which imports nothing of it."""
