"""How marks and fences are read in the text of a reply."""
