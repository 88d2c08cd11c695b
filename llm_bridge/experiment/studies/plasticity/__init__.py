"""Can a tiny language model still learn when some of its answers become wrong? Two stages, trained by VeRL."""
