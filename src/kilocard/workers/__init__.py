"""Several gateway processes on one port: the supervisor, and the link over which its workers share loads and limits."""
