"""Models of engines and clusters on virtual time. Pure."""
