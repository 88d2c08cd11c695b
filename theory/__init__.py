"""Closed-form optima and the numerical checks of every theorem of the paper."""
