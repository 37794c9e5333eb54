"""Start, watch, drain and stop replicas where they run. Decides nothing about traffic."""
