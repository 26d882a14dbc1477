"""Rows of a user's own data: prompts by column, by template or as a chat."""
