"""Plan transfers of KV blocks between node managers before they are needed."""
