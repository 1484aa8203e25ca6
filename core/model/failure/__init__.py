"""Explains in one line why a model cannot be loaded or served."""
