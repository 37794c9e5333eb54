"""A thousand live emulated replicas behind one real gateway, scraped at 1 Hz, with a client that streams."""
