"""The pictures of the controlled experiment."""
