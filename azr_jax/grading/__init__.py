"""Graders: text in, a verdict out; no model text is ever evaluated here."""
