"""The task-shift lab: two prompt families on one shared network, trained on one and then on the other (Appendix E.3)."""
