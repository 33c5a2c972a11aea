"""The node manager: one process per machine that keeps and serves KV payloads."""
