"""Tools that measure the library. The library imports nothing from here."""
