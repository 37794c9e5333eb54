"""A vLLM-compatible server whose timing comes from sim.engine on the wall clock, with fault injection."""
