"""Where CoKL retains as much as replay: over how correctness depends on a response, and what the reference knows."""
