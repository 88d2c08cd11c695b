"""The task-shift lab: two prompt families on one shared network, trained on one, then the other (Appendix E.3)."""
