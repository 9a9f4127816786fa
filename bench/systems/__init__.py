"""The systems that are measured, one module each."""
