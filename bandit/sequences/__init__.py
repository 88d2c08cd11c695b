"""The sequence lab: task shift with responses of many tokens, whose expectations recursions give exactly."""
