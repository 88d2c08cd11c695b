"""Naive references, written as loops straight from the definitions; they import nothing from the project."""
