"""The sections of the page, a module for each kind of result."""
