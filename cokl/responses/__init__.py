"""Responses of the reference policy that were judged: the verifier of answers, and the buffer that keeps them (E.3)."""
