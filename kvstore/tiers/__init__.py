"""Where payloads lie on one machine: an arena in DRAM, slot files on SSD, and the order in which blocks leave."""
