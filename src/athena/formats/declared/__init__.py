"""Text formats that are declared in a file instead of in Python: read, checked, and built from the same parts as all others."""
