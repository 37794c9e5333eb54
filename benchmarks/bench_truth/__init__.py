"""`kilocard bench` beside `vllm bench serve` and GuideLLM, on the same real server, with the same load."""
