"""Other gateways: links, owners of queues, other regions."""
