"""Whether two mathematical answers are the same, and where an answer stands."""
