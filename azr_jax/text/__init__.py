"""How tags and code fences are read in the text of a response."""
