"""Topics between processes: in process, or over Redis."""
