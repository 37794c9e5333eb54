"""Which replicas exist (discovery) and what their metrics pages say (poller). Reports; never decides."""
