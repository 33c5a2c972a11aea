"""Topics between threads or processes: in process, or over Redis."""
