"""Which verdicts of the controlled experiment rest on what the paper leaves open."""
