"""What a node holds and who may change it: the catalog of its blocks, and transactions over them."""
