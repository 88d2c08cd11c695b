"""Training on one task, then on another: what the labs with single actions and with token sequences share."""
