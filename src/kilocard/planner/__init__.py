"""Which engine arguments, how many GPUs, in which layout, for a model, a load and a service objective. Pure."""
