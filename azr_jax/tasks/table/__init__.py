"""Users' own data: rows with a prompt from a column, a template or a chat."""
