"""One request from arrival to its end: prompt keys, objectives, lifecycle."""
