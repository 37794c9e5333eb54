"""Speed and memory arithmetic: what a step costs, what fits. Pure."""
