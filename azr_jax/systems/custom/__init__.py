"""User-defined rewards on user data."""
