"""What a streamed chunk and a request cost in the load client, and how exact its times are, beside other clients'."""
