"""The parts of the soak: an installation of many processes, the killer, and the checks afterwards."""
