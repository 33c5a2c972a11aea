"""The parts of the soak: an installation of many processes, what kills them, and what is checked afterwards."""
