"""Responses of the reference policy that were judged, one row each, kept for any trainer (E.3)."""
