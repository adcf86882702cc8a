"""Prove, with evidence a stranger can check, whether a llama.cpp server gives the same numbers twice."""

__version__ = "0.1.0"
