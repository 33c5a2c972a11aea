"""What an engine and the store of KV payloads say to each other, by way of the gateway."""
