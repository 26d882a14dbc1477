"""A user's own rewards on a user's own data."""
