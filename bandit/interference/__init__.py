"""Why CoKL ends behind replay in the two-task labs: what replay's extra direction, grad log Z, moves."""
